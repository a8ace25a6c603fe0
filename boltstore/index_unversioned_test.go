package boltstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/podgen"
)

// byPolicy is an index by a setting of the program, which the function closes over.
func byPolicy(setting *string) cache.Indexers {
	return cache.Indexers{"policy": func(o any) ([]string, error) {
		return []string{fmt.Sprint(strings.Contains(o.(*corev1.ConfigMap).Data["words"], *setting))}, nil
	}}
}

// TestIndexWithoutVersion: an index without a version finds objects by this claim's function,
// also if the same build has stored other values: the function may depend on settings. It
// does from the first read. With a version the file's values stay.
func TestIndexWithoutVersion(t *testing.T) {
	for _, memory := range []int64{-1, 1 << 20} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("memory %d, added late %v", memory, late), func(t *testing.T) {
				path, setting := testPath(t), ""
				for life, policy := range []string{"a", "b", "c", "b"} {
					setting = policy
					db := openTest(t, path, Options{Durability: DurabilityProcess, ObjectMemory: memory})
					claim := Claim{Source: configMaps, Example: &corev1.ConfigMap{}, Indexers: byPolicy(&setting)}
					if late {
						claim.Indexers = nil
					}
					s, err := db.Claim(claim)
					must(t, err)
					if late {
						must(t, s.AddIndexers(byPolicy(&setting)))
					}
					if life == 0 {
						for i, words := range []string{"a", "b", "a", "b", "b"} {
							must(t, s.Add(configMap("ns", fmt.Sprint(words, i), i+1,
								map[string]string{"words": words})))
						}
					}
					want := map[string]string{"a": "[ns/a0 ns/a2]", "b": "[ns/b1 ns/b3 ns/b4]", "c": "[]"}[policy]
					for _, when := range []string{"at first", "once built", "from memory"} {
						keys, err := s.IndexKeys("policy", "true")
						objs, err2 := s.ByIndex("policy", "true")
						if fmt.Sprint(keys) != want || err != nil || err2 != nil || len(objs) != len(keys) {
							t.Errorf("life %d, policy %s, %s: %v, %d objects, %v, %v, want %s",
								life, policy, when, keys, len(objs), err, err2, want)
						}
						waitBuilt(t, s, "policy")
						if memory > 0 {
							loadedInMemory(t, s)
						}
					}
					if r, err := db.Check(); err != nil || !r.Sound() {
						t.Errorf("%+v %v", r, err)
					}
					closeTest(t, db)
				}
			})
		}
	}
}

// TestIndexWithoutVersionHoldsNothingUp: while an index without a version is built, the claim
// has returned, and reads by key and by other indices are served. Reads by the index wait.
func TestIndexWithoutVersionHoldsNothingUp(t *testing.T) {
	path, setting := testPath(t), "a"
	db := openTest(t, path, Options{Durability: DurabilityProcess, ObjectMemory: -1})
	fns := byPolicy(&setting)
	fns["words"] = indexers["words"]
	versions := map[string]string{"words": "1"}
	s := claimTest(t, db, Claim{Indexers: fns, IndexVersions: versions})
	must(t, s.Add(at(1, "a")))
	closeTest(t, db)

	held := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(held) })
	defer time.AfterFunc(time.Minute, letGo).Stop() // a claim that waits for the index fails, and does not hang
	fns["policy"] = func(any) ([]string, error) { <-held; return []string{"new"}, nil }
	db = openTest(t, path, Options{Durability: DurabilityProcess, ObjectMemory: -1})
	s = claimTest(t, db, Claim{Indexers: fns, IndexVersions: versions})
	select {
	case <-held:
		t.Fatal("the claim has waited for the index")
	default:
	}
	if objs, err := s.ByIndex("words", "a"); len(objs) != 1 || err != nil || len(s.List()) != 1 {
		t.Errorf("while another index is built: %v %v", objs, err)
	}
	read := make(chan string, 1)
	go func() {
		keys, err := s.IndexKeys("policy", "new")
		read <- fmt.Sprint(keys, err)
	}()
	select {
	case got := <-read:
		t.Fatalf("read before it was built: %s", got)
	case <-time.After(50 * time.Millisecond): // a read that does not wait has long ended
	}
	letGo()
	if got := <-read; got != "[a/o] <nil>" {
		t.Error(got)
	}
	closeTest(t, db)
}

// BenchmarkIndexWithoutVersion says what an index without a version costs a start with 20,000
// pods, beside one with a version: until the claim has returned, and until the first read by
// the index has.
func BenchmarkIndexWithoutVersion(b *testing.B) {
	gen, path := podgen.New(1), testPath(b)
	var list []runtime.Object
	for i := range 20_000 {
		p := gen.Pod(i)
		p.ResourceVersion = fmt.Sprint(i + 1)
		list = append(list, p)
	}
	claim := Claim{Source: Source{Resource: "pods", Version: "v1", Form: FormTyped}, Example: &corev1.Pod{},
		Indexers: cache.Indexers{"node": byNode}}
	open := func() (*DB, *Claimed) {
		db := openTest(b, path, Options{ObjectMemory: -1})
		s, err := db.Claim(claim)
		must(b, err)
		return db, s
	}
	db, s := open()
	relist(b, s, "90000", RelistOptions{}, list, 500)
	closeTest(b, db)
	for name, version := range map[string]string{"without": "", "with": "1"} {
		claim.IndexVersions = map[string]string{"node": version}
		db, _ = open()
		closeTest(b, db) // from here on the file has the index of that version
		b.Run(name, func(b *testing.B) {
			var claimed, read time.Duration
			for b.Loop() {
				began := time.Now()
				db, s := open()
				claimed += time.Since(began)
				if keys, err := s.IndexKeys("node", list[7].(*corev1.Pod).Spec.NodeName); err != nil || len(keys) == 0 {
					b.Fatal(keys, err)
				}
				read += time.Since(began)
				b.StopTimer()
				closeTest(b, db)
				b.StartTimer()
			}
			b.ReportMetric(float64(claimed.Milliseconds())/float64(b.N), "ms-to-claim")
			b.ReportMetric(float64(read.Milliseconds())/float64(b.N), "ms-to-read")
		})
	}
}
