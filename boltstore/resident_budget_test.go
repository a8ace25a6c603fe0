package boltstore

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestObjectBudget: sources share the budget in the order in which they come. A source
// that grows beyond it is dropped completely, and comes back with a commit after which it
// would leave an eighth free.
func TestObjectBudget(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: 144_000})
	var all []*Claimed
	fill := func(s *Claimed, n int) {
		t.Helper()
		var objs []any
		for i := range n {
			objs = append(objs, configMap("ns", fmt.Sprint("o", i), i+1, map[string]string{"words": "x"}))
		}
		if err := s.Replace(objs, "100"); err != nil {
			t.Fatal(err)
		}
		waitMemory(all...)
	}
	expect := func(what string, want ...bool) {
		t.Helper()
		for i, s := range all {
			sameInMemory(t, s.source)
			if is := s.memory.shown() != nil; is != want[i] {
				t.Errorf("%s: source %d in memory: %v", what, i, is)
			}
			if st := s.State(); st.InMemory != want[i] || (st.ObjectMemory > 0) != want[i] {
				t.Errorf("%s: source %d: %v, %d bytes", what, i, st.InMemory, st.ObjectMemory)
			}
		}
		if db.objects.used > 144_000 || db.objects.used < 0 {
			t.Errorf("%s: %d bytes", what, db.objects.used)
		}
	}
	for i, n := range []int{40, 30, 30} { // some 76 fit at first, 88 once they are there
		s := claimTest(t, db, Claim{Source: Source{Resource: fmt.Sprint("r", i), Version: "v1", Form: FormTyped},
			Indexers: indexers})
		all = append(all, s)
		fill(s, n)
	}
	expect("the last does not fit", true, true, false)
	fill(all[0], 80)
	expect("the first has grown beyond the budget", false, true, false)
	fill(all[2], 29)
	expect("the last has shrunk", false, true, true)
	fill(all[0], 30)
	expect("it has shrunk, but leaves too little", false, true, true)
	all[1].Release()
	all = []*Claimed{all[0], all[2]}
	fill(all[0], 31)
	expect("another has been released", true, true)
	for _, s := range all {
		s.Release()
	}
	if db.objects.used != 0 {
		t.Errorf("%d bytes are still counted", db.objects.used)
	}
}

// TestPackedDoesNotFit: packed objects look small in the file. A source that did not fit
// is not loaded again and again.
func TestPackedDoesNotFit(t *testing.T) {
	f := newResidentTest(t, Options{Compression: CompressionZstd, ObjectMemory: 200_000}, 1)
	for i := range 40 {
		f.srv.set(configMap("ns", fmt.Sprint("large", i), 1000+i,
			map[string]string{"words": "x", "data": strings.Repeat("z", 10_000)}))
	}
	f.rv = 2000
	relist(t, f.s, "2000", RelistOptions{}, f.srv.list(), 10)
	waitMemory(f.s)
	if m := f.s.metaNow(); f.s.memory.shownSize(m) > 100_000 || f.s.memory.shown() != nil ||
		f.db.objects.reserve(f.s.memory.estimate(m)) {
		t.Errorf("%d bytes in the file, estimated %d", m.Bytes, f.s.memory.estimate(m))
	}
	f.event(0, "y")
	if f.s.memory.now != nil {
		t.Error("it is loaded again")
	}
	f.same()
}

// TestNoObjectMemory: with a negative budget nothing is in memory.
func TestNoObjectMemory(t *testing.T) {
	f := newResidentTest(t, Options{ObjectMemory: -1}, 3)
	f.event(1, "y")
	if f.s.memory.now != nil {
		t.Error("it is in memory")
	}
	f.same()
}

// TestObjectMemoryOfLimit: the default is a quarter of the least limit.
func TestObjectMemoryOfLimit(t *testing.T) {
	for _, c := range []struct{ runtime, cgroup, want int64 }{
		{math.MaxInt64, 0, 8 << 20},
		{0, 0, 8 << 20},
		{1000, 0, 250},
		{1000, 2000, 250},
		{math.MaxInt64, 1 << 30, 256 << 20},
		{1 << 31, 1 << 30, 256 << 20},
		{1, 0, 1},
	} {
		if got := objectMemoryOf(c.runtime, c.cgroup); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
