package informer

import (
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore"
)

// TestDurableStartsOver: another cluster, and a journal that cannot be read.
func TestDurableStartsOver(t *testing.T) {
	w := newWorld(t)
	w.create("theirs")
	r := newLedger(t)
	w.durably(DurableOptions{}, r).run().synced().acknowledged().end()
	r.expect("initial theirs")
	other := newWorld(t)
	other.path = w.path
	other.create("ours")
	r.answers(func(e Event) error {
		if e.Type == EventReset {
			return ErrAckLater
		}
		return nil
	})
	l := other.durably(DurableOptions{}, r).run().synced().equal()
	r.expect("reset")
	l.end() // not acknowledged: told again
	if got := r.take(); len(got) > 0 {
		t.Errorf("told before the reset was acknowledged: %q", got)
	}
	r.answers(nil)
	l = other.durably(DurableOptions{}, r).run().synced().equal().acknowledged()
	r.expect("reset", "initial ours")
	other.create("more")
	r.expect("add more")
	l.acknowledged().end()

	// Changes that no handler was told, in a damaged block.
	r.answers(func(Event) error { return ErrAckLater })
	l = other.durably(DurableOptions{}, r).run().synced()
	other.delete("more")
	r.expect("delete more")
	l.end()
	damageJournal(t, w.path)
	r.answers(nil)
	l = other.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("reset", "initial ours")
	l.cancel()
	<-l.done
	if err := l.db.Close(); err != nil { // no check: the damage is there
		t.Error(err)
	}
}

// TestStartOverAfterLostBlock: the newest entries that a handler has to be told are lost.
// It starts over, and does not wait for more to come.
func TestStartOverAfterLostBlock(t *testing.T) {
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

// TestStartOverAfterLostPosition: the store says that the position is lost, while there is
// nothing else to tell.
func TestStartOverAfterLostPosition(t *testing.T) {
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
