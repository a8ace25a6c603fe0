package boltstore

import (
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// loadedInMemory returns the memory that readers use, when loading has ended.
func loadedInMemory(t testing.TB, s *Claimed) *resident {
	t.Helper()
	waitMemory(s)
	r := s.memory.shown()
	if r == nil {
		t.Fatal("the objects are not in memory")
	}
	return r
}

// waitMemory returns once nothing is being loaded.
func waitMemory(all ...*Claimed) {
	for _, s := range all {
		for loading := true; loading; {
			s.memory.await()
			s.memory.mu.RLock()
			loading = s.memory.now != s.memory.shown()
			s.memory.mu.RUnlock()
		}
	}
}

// wantMemory says whether the source's objects may be in memory.
func wantMemory(s *Claimed, wanted bool) {
	s.memory.forget()
	s.memory.mu.Lock()
	s.memory.wanted = wanted
	s.memory.mu.Unlock()
	s.memory.settle()
}

// sameInMemory compares memory with the file, if the source is in memory.
func sameInMemory(t testing.TB, s *source) {
	t.Helper()
	s.db.h.writeMu.Lock() // no commit is under way
	defer s.db.h.writeMu.Unlock()
	r := s.memory.shown()
	if n := s.memory.disagreed.Load(); n > 0 {
		t.Errorf("memory was not the same as the file, %d times", n)
	}
	if r == nil {
		return
	}
	objects, indices := map[string]any{}, map[string]map[string][]string{}
	names := map[string]bool{} // those that the file has, too
	var size int64
	err := s.db.h.view(func(tx *bolt.Tx) error {
		src, _ := s.db.h.source(tx, s.id)
		m, err := src.meta()
		if err != nil {
			return err
		}
		g := src.contents()
		for name := range *r.names.Load() {
			if s.indices.built(m, name) {
				names[name] = true
			}
		}
		if r.digest != m.Items {
			t.Errorf("memory has %+v, the file %+v", r.digest, m.Items)
		}
		return g.Items.Each(func(raw layout.Raw) {
			key, rec, err := s.coder.owner.ParseRecord(raw.Key, raw.Open())
			if err == nil {
				objects[key], err = s.reader.decodeNew(key, rec)
			}
			if err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
			size += s.memory.slotSize(key, rec)
			for name := range names {
				for _, v := range rec.ValuesOf(name) {
					if indices[name] == nil {
						indices[name] = map[string][]string{}
					}
					indices[name][v] = append(indices[name][v], key)
				}
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if size != r.size {
		t.Errorf("memory counts %d bytes, not %d", r.size, size)
	}
	if n := len(r.store.ListKeys()); n != len(objects) || len(r.store.List()) != n {
		t.Errorf("memory has %d keys and %d objects, the file %d", n, len(r.store.List()), len(objects))
	}
	for key, obj := range objects {
		if is, ok := r.store.Get(key); !ok || !equality.Semantic.DeepEqual(is, obj) {
			t.Errorf("%s: in memory %.300v, in the file %.300v", key, is, obj)
		}
	}
	for name := range names {
		values := r.store.ListIndexFuncValues(name)
		if len(values) != len(indices[name]) {
			t.Errorf("index %s: %d values in memory, %d in the file", name, len(values), len(indices[name]))
		}
		for _, v := range values {
			keys, err := r.store.IndexKeys(name, v)
			slices.Sort(indices[name][v])
			if err != nil || !slices.Equal(keys, indices[name][v]) {
				t.Errorf("index %s: in memory %.50s has %.100q, in the file %.100q, %v", name, v, keys,
					indices[name][v], err)
			}
		}
	}
}

// waitBuilt returns once the file has the index.
func waitBuilt(t testing.TB, s *Claimed, name string) {
	t.Helper()
	// between two looks: the build gives no signal
	for end := time.Now().Add(time.Minute); !s.indices.built(s.metaNow(),
		name); time.Sleep(100 * time.Microsecond) { // polls
		if time.Now().After(end) {
			t.Fatal("the file does not have the index ", name)
		}
	}
}
