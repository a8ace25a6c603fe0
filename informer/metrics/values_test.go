package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// given is a user of a store, with a state that a test has made up.
type given struct {
	store *boltstore.Store
	st    reflector.State
}

func (g given) Store() *boltstore.Store { return g.store }
func (g given) State() reflector.State  { return g.st }

// collecting collects what a function sends.
type collecting func(sender)

func (collecting) Describe(chan<- *prometheus.Desc)      {}
func (c collecting) Collect(ch chan<- prometheus.Metric) { c(sender(ch)) }

// TestValues: each metric shows its own value, in its unit.
func TestValues(t *testing.T) {
	db := open(t, t.TempDir()+"/cache.db", boltstore.Options{Durability: boltstore.DurabilityProcess})
	src := boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}
	s, err := db.Claim(boltstore.Claim{Source: src, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(configMap("web", "a")); err != nil {
		t.Fatal(err)
	}
	s.Release()
	secrets, err := db.Claim(boltstore.Claim{Source: src, Example: &corev1.Secret{}}) // of another type
	if err != nil {
		t.Fatal(err)
	}
	st := reflector.State{Phase: reflector.PhaseLive, Resumes: 2, BytesSaved: 3, Failed: 4, Degraded: "why",
		Unstored: 5, Unindexed: 6,
		Relists: map[string]uint64{reflector.ReasonAudit: 7}, LastRelistAt: time.UnixMilli(1_234_567_500)}
	got := scrape(t, registry(t, collecting(func(c sender) {
		c.source(labels{}, given{secrets.Store, st})
		c.handlers("s", []informer.Lag{{Entries: 8},
			{Handler: "h", Pending: 10, Age: 9500 * time.Millisecond, Failing: 11, Failures: 12}})
	})))
	const of = " source=configmaps/v1"
	expect(t, "made up", got, map[string]float64{
		"source_resumes_total" + of: 2, "source_saved_bytes_total" + of: 3, "source_failed_total" + of: 4,
		"source_degraded" + of: 1,
		"source_unstored" + of: 5, "source_unindexed" + of: 6, "source_relists_total reason=audit" + of: 7,
		"source_last_relist_timestamp_seconds" + of: 1_234_567.5,
		"source_objects" + of:                       1, "source_bytes" + of: float64(secrets.State().Bytes),
		"source_journal_bytes" + of:                                       0,
		fmt.Sprint("source_outdated reason=", boltstore.OutdatedType, of): 1,
		"handler_lag_entries source=s":                                    8,
		"handler_pending_age_seconds handler=h source=s":                  9.5,
		"handler_pending_keys handler=h source=s":                         10,
		"handler_failing_keys handler=h source=s":                         11,
		"handler_failures_total handler=h source=s":                       12,
	})
}

// TestUnits: durations are in seconds, sizes in bytes, and indices are counted each by
// itself.
func TestUnits(t *testing.T) {
	db := open(t, t.TempDir()+"/cache.db", boltstore.Options{Durability: boltstore.DurabilityProcess})
	claim := boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}}
	s, err := db.Claim(claim)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(configMap("web", "a")); err != nil {
		t.Fatal(err)
	}
	name := func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Name}, nil }
	for life, indexers := range []cache.Indexers{{"one": name}, {"one": name}, {"one": name, "two": name}} {
		s.Release()
		claim.Indexers, claim.IndexVersions = indexers, map[string]string{"one": fmt.Sprint(life), "two": "1"}
		if s, err = db.Claim(claim); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddIndexers(cache.Indexers{"empty": func(any) ([]string, error) { return nil, nil }}); err != nil {
		t.Fatal(err)
	}
	age := 1500 * time.Millisecond
	state := reflector.StateOf(boltstore.State{ConfirmedAge: &age}, time.Now())
	got := scrape(t, registry(t, collecting(func(c sender) {
		c.source(labels{}, given{s.Store, state})
		c.open(boltstore.Stats{Writing: 2500 * time.Millisecond, ObjectMemory: 3, ObjectMemoryLimit: 4}, nil)
	})))
	const of = " source=configmaps/v1"
	expect(t, "units", got, map[string]float64{
		"source_age_seconds" + of: 1.5, "commit_running_seconds": 2.5, "object_memory_bytes": 3,
		"object_memory_limit_bytes": 4, "commit_failing": 0,
		"source_reindexed_total index=one" + of: 1, "source_reindexed_total index=two" + of: 1,
	})
	got = scrape(t, registry(t, collecting(func(c sender) { c.open(boltstore.Stats{Failing: 1}, nil) })))
	expect(t, "failing", got, map[string]float64{"commit_running_seconds": 0, "commit_failing": 1})
}
