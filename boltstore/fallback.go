package boltstore

import (
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Fallback counts the informers of one type that should keep their objects in the file
// and, for one reason, do not.
type Fallback struct {
	Type   string    // the Go type, or the kind of unstructured and metadata objects
	Reason string    // why, and what to do about it
	Strict bool      // they never sync; otherwise they keep their objects in memory
	Count  uint64    // how many there were since the file was opened
	Last   time.Time // when the last of them was made
}

// mostFallbacks bounds the list for programs that make informers for ever. Further
// reasons count with the type's last one.
const mostFallbacks = 100

// fallbacks has the informers that have told the DB that they go without the file.
type fallbacks struct {
	mu  sync.Mutex
	all []Fallback
}

// AddFallback notes that an informer goes without the file, and logs it as an error.
// Strict informers never sync. See informer.ForControllerRuntime. A nil DB only logs.
func (db *DB) AddFallback(typ string, strict bool, reason error) {
	what := "An informer keeps its objects in memory only, and lists everything at each start"
	if strict {
		what = "An informer will not sync, since its objects cannot be kept in the file"
	}
	if db == nil {
		klog.Background().Error(reason, what, "type", typ)
		return
	}
	db.log().Error(reason, what, "type", typ, "file", db.path)
	f := Fallback{Type: typ, Reason: reason.Error(), Strict: strict}
	db.fell.mu.Lock()
	defer db.fell.mu.Unlock()
	i := slices.IndexFunc(db.fell.all, func(g Fallback) bool {
		return g.Type == f.Type && g.Strict == f.Strict && (g.Reason == f.Reason || len(db.fell.all) >= mostFallbacks)
	})
	if i < 0 {
		db.fell.all = append(db.fell.all, f)
		i = len(db.fell.all) - 1
	}
	db.fell.all[i].Count++
	db.fell.all[i].Reason, db.fell.all[i].Last = f.Reason, db.opts.Clock.Now()
}

// Fallbacks returns which informers go without the file, and why. A program that should
// wake from the file has none.
func (db *DB) Fallbacks() []Fallback {
	db.fell.mu.Lock()
	defer db.fell.mu.Unlock()
	return slices.Clone(db.fell.all)
}
