package informer

import (
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestDurableStartsOver: another cluster, and a set of pending keys that cannot be read.
func TestDurableStartsOver(t *testing.T) {
	w := newWorld(t)
	w.create("theirs")
	r := newLedger(t)
	w.durably(DurableOptions{}, r).run().synced().acknowledged().end()
	r.expect("reset", "initial theirs")
	other := newWorld(t)
	other.path = w.path
	other.create("ours")
	r.answers(func(e Event) error {
		if e.Reset {
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

	// The set of pending keys is damaged.
	r.answers(func(Event) error { return ErrAckLater })
	l = other.durably(DurableOptions{}, r).run().synced()
	other.delete("more")
	r.expect("delete more")
	l.end()
	inSource(t, w.path, func(src *bolt.Bucket) error {
		set := src.Bucket([]byte("pending")).Bucket([]byte("test"))
		k, v := set.Cursor().Last()
		b := slices.Clone(v)
		b[len(b)-1] ^= 1
		return set.Put(slices.Clone(k), b)
	})
	r.answers(nil)
	l = other.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("reset", "initial ours")
	l.end()
}

// TestStartOverAfterLostKeys: pending keys are lost. The handler starts over.
func TestStartOverAfterLostKeys(t *testing.T) {
	w := newWorld(t)
	w.create("stays")
	w.create("goes")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("reset", "initial goes", "initial stays")
	r.answers(func(Event) error { return ErrAckLater })
	w.delete("goes")
	r.expect("delete goes")
	l.end()
	inSource(t, w.path, func(src *bolt.Bucket) error {
		return src.Bucket([]byte("pending")).DeleteBucket([]byte("test"))
	})
	r.answers(nil)
	l = w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("reset", "initial stays")
	l.end()
}
