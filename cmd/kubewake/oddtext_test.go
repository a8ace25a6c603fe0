package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/history"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/metrics"
	"github.com/kubewake/kubewake/reflector"
)

// TestHistoryKeepsTheTerminal: field names of custom resources and other text in objects
// cannot control the terminal.
func TestHistoryKeepsTheTerminal(t *testing.T) {
	const odd = "\x1b[2J\u009b2Jü\r\n\t"
	var out bytes.Buffer
	v := live.Version{Version: history.Version{Key: "web/" + odd, Type: cache.Updated, ResourceVersion: odd, Managers: []string{odd},
		Diff: []history.Change{{Path: ".spec." + odd, Old: odd, New: map[string]any{odd: odd}}}}}
	if err := (&historyCmd{}).print(&out, v); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), "ü") ||
		strings.ContainsFunc(out.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
		t.Errorf("%q", out.String())
	}
}

// TestMetricsOfOddNames: text that is not UTF-8, as in a namespace from the command line,
// does not end the program.
func TestMetricsOfOddNames(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "f.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	src := boltstore.Source{Version: "v1", Resource: "pods", Namespace: "a\xff", Form: boltstore.FormTyped}
	inf, err := informer.NewSharedIndexInformer(db, &cache.ListWatch{}, &corev1.Pod{}, informer.Options{Reflector: reflector.Options{Source: &src}})
	if err != nil {
		t.Fatal(err)
	}
	var s stats
	s.begin(db)
	s.add(&source{name: src.String(), inf: inf})
	registry := prometheus.NewRegistry()
	registry.MustRegister(&s, metrics.NewCollector(db))
	if all, err := registry.Gather(); err != nil || len(all) < 10 {
		t.Errorf("%d metrics, %v", len(all), err)
	}
}
