package boltstore

import (
	"fmt"
	"os"
	"path/filepath"
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
			sameInMemory(t, s.Store)
			if is := s.inMemory() != nil; is != want[i] {
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
		s := claimTest(t, db, Claim{Source: Source{Resource: fmt.Sprint("r", i), Version: "v1", Form: FormTyped}, Indexers: indexers})
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
		f.srv.set(configMap("ns", fmt.Sprint("large", i), 1000+i, map[string]string{"words": "x", "data": strings.Repeat("z", 10_000)}))
	}
	f.rv = 2000
	relist(t, f.s, "2000", RelistOptions{}, f.srv.list(), 10)
	waitMemory(f.s)
	if m := f.s.metaNow(); f.s.shownSize(m) > 100_000 || f.s.inMemory() != nil || f.db.objects.reserve(f.s.estimate(m)) {
		t.Errorf("%d bytes in the file, estimated %d", m.Bytes, f.s.estimate(m))
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

// TestMemoryLimit: the limits of the control group, of the groups above it and of Go's
// runtime are respected.
func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		runtime int64
		want    int64
	}{
		"none":            {nil, 1<<63 - 1, 0},
		"runtime":         {nil, 1000, 1000},
		"container":       {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2000\n"}, 1<<63 - 1, 2000},
		"no limit":        {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 1<<63 - 1, 0},
		"the smaller":     {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2000\n"}, 1500, 1500},
		"a group above":   {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "3000", "sys/fs/cgroup/a/b/memory.max": "max"}, 1<<63 - 1, 3000},
		"version 1":       {map[string]string{"proc/self/cgroup": "4:cpu:/\n3:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4000"}, 1<<63 - 1, 4000},
		"version 1, none": {map[string]string{"proc/self/cgroup": "3:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 1<<63 - 1, 0},
		"the host's path": {map[string]string{"proc/self/cgroup": "3:memory:/docker/0a\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000"}, 1<<63 - 1, 5000},
		"malformed":       {map[string]string{"proc/self/cgroup": "what\n0::\n", "sys/fs/cgroup/memory.max": "much"}, 1<<63 - 1, 0},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(root, c.runtime); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if a, b := objectMemoryOf(0), objectMemoryOf(1<<30); a != 8<<20 || b != 256<<20 {
		t.Error(a, b)
	}
}
