package boltstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// TestFallbacks: they are counted by type and reason, and their record is bounded.
func TestFallbacks(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "wake.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	claimed, unknown := errors.New("claimed"), errors.New("unknown")
	db.AddFallback("*v1.Pod", false, claimed)
	db.AddFallback("*v1.Pod", false, claimed)
	db.AddFallback("*v1.Pod", true, claimed)
	db.AddFallback("*v1.Pod", false, unknown)
	db.AddFallback("*v1.Node", false, claimed)
	got := ""
	for _, f := range db.Fallbacks() {
		got += fmt.Sprintln(f.Type, f.Strict, f.Reason, f.Count, !f.Last.IsZero())
	}
	if want := "*v1.Pod false claimed 2 true\n*v1.Pod true claimed 1 true\n*v1.Pod false unknown 1 true\n*v1.Node " +
		"false claimed 1 true\n"; got != want {
		t.Errorf("fallbacks\n%s", got)
	}
	for i := range 10 * mostFallbacks {
		db.AddFallback("*v1.Pod", false, fmt.Errorf("reason %d", i))
	}
	total := uint64(0)
	for _, f := range db.Fallbacks() {
		total += f.Count
	}
	if n := len(db.Fallbacks()); n > mostFallbacks || total != 5+10*mostFallbacks {
		t.Errorf("%d kept of %d", n, total)
	}
}
