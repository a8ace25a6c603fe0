package boltstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestErrorsNameTheirSubject: the error of a call on a closed file names the source or the file.
func TestErrorsNameTheirSubject(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Indexers: cache.Indexers{"words": indexers["words"]}})
	_, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	must(t, err)
	must(t, db.Close())
	for name, call := range map[string]func() error{
		"Add":           func() error { return s.Add(configMap("ns", "a", 1, nil)) },
		"AddIndexers":   func() error { return s.AddIndexers(cache.Indexers{"x": indexers["words"]}) },
		"ByIndex":       func() error { _, err := s.ByIndex("words", "x"); return err },
		"Changed":       func() error { _, err := s.Changed(); return err },
		"Describe":      func() error { return s.Describe(Description{Scope: ScopeCluster}) },
		"GetByKey":      func() error { _, _, err := s.GetByKey("x"); return err },
		"Handlers":      func() error { _, err := s.Handlers(); return err },
		"IndexKeys":     func() error { _, err := s.IndexKeys("words", "x"); return err },
		"ListErr":       func() error { _, err := s.ListErr(); return err },
		"ListKeysErr":   func() error { _, err := s.ListKeysErr(); return err },
		"Moment":        func() error { _, _, err := s.Moment(""); return err },
		"Page":          func() error { _, err := s.Page(nil, 1); return err },
		"RemoveHandler": func() error { return s.Delivery.Remove("mail") },
		"check":         func() error { _, err := db.Check(); return err },
		"claim": func() error {
			_, err := db.Claim(Claim{Source: configMaps, Example: configMap("", "", 0, nil)})
			return err
		},
		"compact":  func() error { _, err := db.Compact(context.Background(), nil); return err },
		"err":      db.Err,
		"snapshot": func() error { _, err := db.Snapshot(); return err },
		"states":   func() error { _, err := db.States(); return err },
		"view":     func() error { _, err := db.View(configMaps); return err },
	} {
		err := call()
		if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), configMaps.String()) &&
			!strings.Contains(err.Error(), db.Path()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
