package seal

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tink-crypto/tink-go/v2/keyset"
)

// keysOf returns the ids of the keys in a keyset file.
func keysOf(t *testing.T, path string) map[uint32]bool {
	t.Helper()
	h, err := File(path).read()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[uint32]bool{}
	for i := range h.Len() {
		e, err := h.Entry(i)
		if err != nil {
			t.Fatal(err)
		}
		ids[e.KeyID()] = true
	}
	return ids
}

func primaryOf(t *testing.T, h *keyset.Handle) uint32 {
	t.Helper()
	p, err := h.Primary()
	if err != nil {
		t.Fatal(err)
	}
	return p.KeyID()
}

// TestConcurrentRotations: no key that was the primary one is ever lost. A file may be
// sealed by it.
func TestConcurrentRotations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k.key")
	if err := Generate(path); err != nil {
		t.Fatal(err)
	}
	const programs, times = 4, 5
	var mu sync.Mutex
	used := map[uint32]bool{}
	var wg sync.WaitGroup
	for range programs {
		wg.Go(func() {
			for range times {
				if err := Rotate(path); err != nil {
					t.Error(err)
					return
				}
				h, err := File(path).read()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				used[primaryOf(t, h)] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	have := keysOf(t, path)
	for id := range used {
		if !have[id] {
			t.Errorf("key %d was the primary one and is gone", id)
		}
	}
	if want := 1 + programs*times; len(have) != want {
		t.Errorf("%d keys, not %d", len(have), want)
	}
}

// TestRotateThroughALink: a link stays a link, and its target has the new key.
func TestRotateThroughALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "k.key"), filepath.Join(t.TempDir(), "link")
	if err := Generate(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err) // some file systems, and Windows without the right, have no links
	}
	if err := Rotate(link); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("%q %v", to, err)
	}
	if have := keysOf(t, path); len(have) != 2 {
		t.Errorf("%d keys", len(have))
	}
}
