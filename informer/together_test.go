package informer

import (
	"errors"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore"
)

// inSource changes what the first source of a file has, beside all else.
func inSource(t *testing.T, path string, fn func(src *bolt.Bucket) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		sources := tx.Bucket([]byte("sources"))
		id, _ := sources.Cursor().First()
		return fn(sources.Bucket(id))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDurableNewestBlockLost: the newest entries are gone that a handler has to
// be told. It starts over, and does not wait for others to come.
func TestDurableNewestBlockLost(t *testing.T) {
	w := newWorld(t)
	w.create("stays")
	w.create("goes")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("initial goes", "initial stays")
	r.answers(func(Event) error { return ErrAckLater })
	w.delete("goes")
	r.expect("delete goes")
	l.end()
	inSource(t, w.path, func(src *bolt.Bucket) error {
		j := src.Bucket([]byte("journal"))
		k, _ := j.Cursor().Last()
		return j.Delete(slices.Clone(k))
	})
	r.answers(nil)
	l = w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("reset", "initial stays")
	l.cancel()
	<-l.done
	if err := l.db.Close(); err != nil { // no check: the damage is there
		t.Error(err)
	}
}

// TestDurableLost: the store says that the position is lost, while there is
// nothing else to tell.
func TestDurableLost(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("initial a")
	for d := range l.inf.durables {
		var p boltstore.Positioner = d
		p.Lost()
	}
	r.expect("reset", "initial a")
	l.acknowledged()
	w.create("b")
	r.expect("add b")
	l.acknowledged().end()
	l = w.durably(DurableOptions{}, r).run().synced().acknowledged()
	w.create("c")
	r.expect("add c")
	l.end()
}
