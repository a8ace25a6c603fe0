package backlog

import (
	"slices"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
)

// TestBacklog: entries that are not in memory are reported as in the file, and a jump is
// never taken back.
func TestBacklog(t *testing.T) {
	size := (&boltstore.Entry{}).Size()
	b := New(10, 3*size)
	b.Needs("a reader", 11)
	seqs := func(from uint64) (got []uint64, inFile bool) {
		entries, inFile := b.From(from)
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
		b.Append(&boltstore.Entry{Seq: seq})
	}
	expect(13, false, 13, 14, 15)
	expect(15, false, 15)
	expect(12, true) // over the budget
	expect(16, false)
	b.Jump(20)
	expect(15, true)
	expect(20, true)
	expect(21, false)
	b.Append(&boltstore.Entry{Seq: 18}) // popped later, long passed
	expect(21, false)
	if b.Last() != 20 {
		t.Fatal(b.Last())
	}
	b.Append(&boltstore.Entry{Seq: 21})
	expect(21, false, 21)
	b.Append(&boltstore.Entry{Seq: 25}) // what is between is in the file
	expect(22, true)
	expect(25, false, 25)
}

// TestBacklogLetsGo: the entries that a reader has in hand stay, however slow it is.
func TestBacklogLetsGo(t *testing.T) {
	size := (&boltstore.Entry{}).Size()
	b := New(0, 10*size)
	b.Needs("a reader", 1)
	next := uint64(1)
	for range 10 {
		b.Append(&boltstore.Entry{Seq: next})
		next++
	}
	inHand, _ := b.From(1)
	for range 100 {
		b.Append(&boltstore.Entry{Seq: next})
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

// TestBacklogKeepsWhatIsNeeded: entries that all readers have read are dropped, and so
// are entries that come while there is no reader.
func TestBacklogKeepsWhatIsNeeded(t *testing.T) {
	b := New(0, 1<<20)
	kept := func(want ...uint64) {
		t.Helper()
		var got []uint64
		bytes := 0
		for _, e := range b.entries {
			got, bytes = append(got, e.Seq), bytes+e.Size()
		}
		if !slices.Equal(got, want) || b.bytes != bytes {
			t.Fatalf("%v are kept, and count %d bytes, not %d", got, b.bytes, bytes)
		}
	}
	append3 := func() {
		for range 3 {
			b.Append(&boltstore.Entry{Seq: b.Last() + 1})
		}
	}
	append3()
	kept()
	b.Needs("fast", 4)
	b.Needs("slow", 4)
	append3()
	kept(4, 5, 6)
	b.Needs("fast", 7)
	kept(4, 5, 6)
	b.Needs("slow", 6)
	kept(6)
	append3()
	kept(6, 7, 8, 9)
	if _, inFile := b.From(5); !inFile {
		t.Error("what was let go is not said to be in the file")
	}
	b.Leave("slow")
	kept(7, 8, 9)
	b.Leave("fast")
	kept()
	append3()
	kept()
	if b.Last() != 12 {
		t.Error(b.Last())
	}
}
