package boltstore

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"weak"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/podgen"
)

// TestSharedBlock: readers of the same changes share the block that the first of them has
// unpacked, but no bytes of the entries. After the next commit they see that.
func TestSharedBlock(t *testing.T) {
	s, at := changedPods(t)
	unpacked := func() *sharedBlock {
		p, ok := s.db.parsed.blocks.Load(s.id)
		if !ok {
			return nil
		}
		return p.(weak.Pointer[sharedBlock]).Value()
	}
	var first EntriesAt
	var block *sharedBlock // held here, so that the collector leaves it
	for block == nil {     // it may have taken it already
		var err error
		first, err = s.EntriesAfter(at)
		must(t, err)
		block = unpacked()
	}
	second, err := s.EntriesAfter(at)
	must(t, err)
	if unpacked() != block {
		t.Error("the second reader has unpacked it again")
	}
	if len(first.Entries) != 16 || len(second.Entries) != 16 {
		t.Fatal(len(first.Entries), len(second.Entries))
	}
	var next [][]byte // as they are
	for i, e := range first.Entries {
		o := second.Entries[i]
		next = append(next, bytes.Clone(e.next))
		if e.Key != o.Key || !bytes.Equal(e.next, o.next) || !bytes.Equal(e.prev, o.prev) {
			t.Errorf("%s and %s differ", e.Key, o.Key)
		}
		clear(e.next)
		clear(e.prev)
	}
	third, err := s.EntriesAfter(at)
	must(t, err)
	for i, e := range third.Entries {
		if o := second.Entries[i]; !bytes.Equal(e.next, next[i]) || !bytes.Equal(o.next, next[i]) {
			t.Errorf("%s: another reader has changed it", e.Key)
		}
	}
	relist(t, s, "300000", RelistOptions{}, nil, 100)
	gone, err := s.EntriesAfter(second.Next)
	if err != nil || len(gone.Entries) == 0 || gone.Entries[0].Type != cache.Deleted {
		t.Errorf("%d entries after the next list, %v", len(gone.Entries), err)
	}
}

// TestSharedBlockInAnothersPlace: a block that a damaged page shows in another one's place is
// damage, also for a reader that has just unpacked it.
func TestSharedBlockInAnothersPlace(t *testing.T) {
	s, at := changedPods(t)
	relist(t, s, "300000", RelistOptions{}, nil, 100) // another block
	first, err := s.EntriesAfter(at)
	must(t, err)
	var held *sharedBlock
	must(t, s.db.h.update(func(tx *bolt.Tx) error {
		src, _ := s.db.h.source(tx, s.id)
		seq := at.Seq + 1
		_, b, err := src.seekBlock(src.Journal(), seq)
		if err != nil {
			return err
		}
		b = bytes.Clone(b)
		drafts, err := src.unpackBlock(seq, b)
		held = &sharedBlock{first: seq, stored: b, drafts: drafts}
		s.db.parsed.blocks.Store(s.id, weak.Make(held)) // as the reader has left it, if the collector took it
		next := layout.U64(first.Next.Seq + 1)
		return errors.Join(err, src.Journal().Delete(next), src.Journal().Put(next, b))
	}, nil))
	if got, err := s.EntriesAfter(first.Next); !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries of another block, %v", len(got.Entries), err)
	}
	runtime.KeepAlive(held)
}

// changedPods returns a source of 200 pods, and the moment before 16 of them changed.
func changedPods(t testing.TB) (*Claimed, Moment) {
	db, err := Open(t.TempDir()+"/test.db", Options{})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	s, err := db.Claim(Claim{Source: Source{Version: "v1", Resource: "pods", Form: FormTyped}, Example: &corev1.Pod{}})
	must(t, err)
	gen := podgen.New(1)
	var pods []kruntime.Object
	for i := range 200 {
		pods = append(pods, gen.Pod(i))
	}
	relist(t, s, "100000", RelistOptions{}, pods, 100)
	at, _, err := s.Moment("")
	must(t, err)
	for i := range 16 {
		p := pods[i].DeepCopyObject().(*corev1.Pod)
		gen.Mutate(p, 1)
		p.ResourceVersion = "150000"
		pods[i] = p
	}
	relist(t, s, "200000", RelistOptions{}, pods, 100)
	return s, at
}

// BenchmarkEntriesAfter reads the last commit's changes of 16 pods again and again, as
// watchers of the API on a file do.
func BenchmarkEntriesAfter(b *testing.B) {
	s, at := changedPods(b)
	b.ReportAllocs()
	for b.Loop() {
		e, err := s.EntriesAfter(at)
		if err != nil || len(e.Entries) != 16 {
			b.Fatal(len(e.Entries), err)
		}
	}
}
