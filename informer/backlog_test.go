package informer

import (
	"testing"

	"github.com/kubewake/kubewake/boltstore"
)

// TestBacklog: what is not in memory is said to be in the file, and a jump is
// never taken back.
func TestBacklog(t *testing.T) {
	size := (&boltstore.Entry{}).Size()
	b := newBacklog(10, 3*size)
	seqs := func(from uint64) (got []uint64, inFile bool) {
		entries, inFile := b.from(from)
		for _, e := range entries {
			got = append(got, e.Seq)
		}
		return got, inFile
	}
	expect := func(from uint64, inFile bool, want ...uint64) {
		t.Helper()
		got, in := seqs(from)
		if in != inFile || len(got) != len(want) {
			t.Fatalf("from %d: %v, in the file: %v", from, got, in)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("from %d: %v", from, got)
			}
		}
	}
	expect(11, false)
	expect(10, true)
	for seq := uint64(11); seq <= 15; seq++ {
		b.append(&boltstore.Entry{Seq: seq})
	}
	expect(13, false, 13, 14, 15)
	expect(15, false, 15)
	expect(12, true) // over the budget
	expect(16, false)
	b.jump(20)
	expect(15, true)
	expect(20, true)
	expect(21, false)
	b.append(&boltstore.Entry{Seq: 18}) // popped later, long passed
	expect(21, false)
	if b.last() != 20 {
		t.Fatal(b.last())
	}
	b.append(&boltstore.Entry{Seq: 21})
	expect(21, false, 21)
	b.append(&boltstore.Entry{Seq: 25}) // what is between is in the file
	expect(22, true)
	expect(25, false, 25)
}

// TestBacklogLetsGo: what a reader has in hand stays, however slow it is.
func TestBacklogLetsGo(t *testing.T) {
	size := (&boltstore.Entry{}).Size()
	b := newBacklog(0, 10*size)
	next := uint64(1)
	for range 10 {
		b.append(&boltstore.Entry{Seq: next})
		next++
	}
	inHand, _ := b.from(1)
	for range 100 {
		b.append(&boltstore.Entry{Seq: next})
		next++
	}
	for i, e := range inHand {
		if e == nil || e.Seq != uint64(i+1) {
			t.Fatalf("entry %d of %d is %+v by now", i, len(inHand), e)
		}
	}
	if len(b.entries) > 10 || len(inHand) != 10 {
		t.Fatalf("%d in hand, %d are kept", len(inHand), len(b.entries))
	}
}
