package boltstore

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestReaderOverReload: a reader is held up while new contents come and replace the
// earlier ones in memory. It misses nothing.
func TestReaderOverReload(t *testing.T) {
	for name, missing := range map[string]func(s *Store) bool{
		"GetByKey": nil,
		"List":     func(s *Store) bool { return len(s.List()) != 40 },
		"ListKeys": func(s *Store) bool { return len(s.ListKeys()) != 40 },
	} {
		t.Run(name, func(t *testing.T) {
			f := newResidentTest(t, Options{ObjectMemory: 16 << 20, maxCommitBytes: 1}, 40)
			r := loadedInMemory(t, f.s)
			key := f.s.ListKeys()[0]
			r.store = &heldStore{r.store, func() {
				for n := range 40 {
					f.set(n, strings.Repeat("y", 20_000))
				}
				relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 5)
				f.s.memory.forget()
				f.s.memory.settle()
				if loadedInMemory(t, f.s) == r {
					t.Error("nothing was loaded")
				}
			}}
			if name == "GetByKey" {
				missing = func(s *Store) bool { _, ok, err := s.GetByKey(key); return err != nil || !ok }
			}
			if missing(f.s.Store) {
				t.Error("objects are missing")
			}
		})
	}
}

// heldStore holds up its first reader.
type heldStore struct {
	cache.ThreadSafeStoreWithTransaction
	hold func()
}

func (h *heldStore) held() {
	if fn := h.hold; fn != nil {
		h.hold = nil
		fn()
	}
}

func (h *heldStore) Get(key string) (any, bool) {
	h.held()
	return h.ThreadSafeStoreWithTransaction.Get(key)
}

func (h *heldStore) List() []any { h.held(); return h.ThreadSafeStoreWithTransaction.List() }

func (h *heldStore) ListKeys() []string { h.held(); return h.ThreadSafeStoreWithTransaction.ListKeys() }
