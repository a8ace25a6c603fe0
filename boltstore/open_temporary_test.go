package boltstore

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// TestOpenOrTemporary: while the file is in use another one is used, which is removed
// completely. The program is told when the file is free, and the file is as it was.
func TestOpenOrTemporary(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := testPath(t)
	first, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free != nil || first.Path() != path {
		t.Fatal(first, free, err)
	}
	s := claimTest(t, first, Claim{})
	if err := s.Add(configMap("ns", "a", 1, nil)); err != nil {
		t.Fatal(err)
	}
	second, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free == nil || second.Path() == path {
		t.Fatal(second, free, err)
	}
	other := claimTest(t, second, Claim{})
	if err := other.Add(configMap("ns", "b", 2, nil)); err != nil {
		t.Fatal(err)
	}
	if keys := other.ListKeys(); len(keys) != 1 {
		t.Errorf("the temporary file has %q", keys)
	}
	select {
	case <-free:
		t.Fatal("free while it is in use")
	case <-time.After(3 * freePoll):
	}
	s.Release()
	closeTest(t, first)
	select {
	case <-free:
	case <-time.After(time.Minute):
		t.Fatal("not told that it is free")
	}
	other.Release()
	closeTest(t, second)
	if _, err := os.Stat(filepath.Dir(second.Path())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	third, free, err := OpenOrTemporary(path, Options{})
	if err != nil || free != nil {
		t.Fatal(free, err)
	}
	s = claimTest(t, third, Claim{})
	if keys := s.ListKeys(); len(keys) != 1 || keys[0] != "ns/a" {
		t.Errorf("the file has %q", keys)
	}
	// Closed while it still waits, it ends.
	fourth, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free == nil {
		t.Fatal(free, err)
	}
	closeTest(t, fourth)
}

// pollClock says when the program waits before it asks again whether a file is free, and
// ends the wait on demand.
type pollClock struct {
	clock.WithTicker
	polled chan chan<- time.Time
}

func (c pollClock) After(d time.Duration) <-chan time.Time {
	if d != freePoll {
		return c.WithTicker.After(d)
	}
	again := make(chan time.Time, 1)
	c.polled <- again
	return again
}

// TestFreeIsTheLock: the file's lock says whether it is free, not the key server; if that
// cannot be known, it is not free.
func TestFreeIsTheLock(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var reads atomic.Int32
	var failing atomic.Bool
	h, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		t.Fatal(err)
	}
	keys := seal.Func("a key server", func() (*keyset.Handle, error) {
		reads.Add(1)
		if failing.Load() {
			return nil, errors.New("503")
		}
		return h, nil
	})
	path := testPath(t)
	first := openTest(t, path, Options{Keyset: keys})
	clk := pollClock{clock.RealClock{}, make(chan chan<- time.Time, 100)}
	second, free, err := OpenOrTemporary(path, Options{LockTimeout: -1, Keyset: keys, Clock: clk})
	if err != nil || free == nil {
		t.Fatal(free, err)
	}
	defer closeTest(t, second)
	failing.Store(true)
	before := reads.Load()
	poll := func(what string) {
		t.Helper()
		select {
		case again := <-clk.polled:
			again <- time.Time{}
		case <-free:
			t.Fatal("told to be free while", what)
		case <-time.After(time.Minute):
			t.Fatal("not asked again")
		}
	}
	for range 5 {
		poll("it is locked")
	}
	closeTest(t, first)
	select {
	case <-free:
	case again := <-clk.polled: // it may have asked just before
		again <- time.Time{}
		<-free
	}
	if n := reads.Load() - before; n > 0 {
		t.Errorf("the key server was asked %d times", n)
	}
}

// TestFileIsFree: a file that is gone is free, damaged or not; if its lock cannot be
// asked for, it may not be free.
func TestFileIsFree(t *testing.T) {
	path := testPath(t)
	if !osfile.IsFree(path) {
		t.Error("none is there")
	}
	for _, content := range [][]byte{nil, []byte("damaged"), filled(t)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if !osfile.IsFree(path) {
			t.Errorf("%d bytes that nobody has open", len(content))
		}
	}
	db := openTest(t, path, Options{})
	if osfile.IsFree(path) {
		t.Error("it is open")
	}
	closeTest(t, db)
	reader := openTest(t, path, Options{ReadOnly: true})
	if osfile.IsFree(path) {
		t.Error("a reader has it, beside which nobody can write")
	}
	closeTest(t, reader)
	if !osfile.IsFree(path) {
		t.Error("the reader has closed it")
	}
	if osfile.IsFree(filepath.Join(path, "below a file")) {
		t.Error("where there can be none")
	}
}

// TestKilledTemporary: if a killed program has left a copy of the cache in the folder for
// temporary files, the next program removes it. Copies in use, copies of another user and
// other folders stay.
func TestKilledTemporary(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	path := testPath(t)
	openTest(t, path, Options{})
	used, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free == nil {
		t.Fatal(free, err)
	}
	s := claimTest(t, used, Claim{})
	if err := s.Add(configMap("ns", "a", 1, nil)); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(tmp, temporaryPrefix+"killed")
	early := filepath.Join(tmp, temporaryPrefix+"killed-early")
	elsewhere := t.TempDir()
	stay := map[string]func(name string) error{
		"kubewake-1000":            func(name string) error { return os.Mkdir(name, 0o700) }, // of sockets
		temporaryPrefix + "file":   func(name string) error { return os.WriteFile(name, nil, 0o600) },
		temporaryPrefix + "link":   func(name string) error { return os.Symlink(elsewhere, name) },
		temporaryPrefix + "shared": func(name string) error { return errors.Join(os.Mkdir(name, 0o700), os.Chmod(name, 0o777)) },
	}
	if os.Geteuid() == 0 {
		stay[temporaryPrefix+"stranger"] = func(name string) error { return errors.Join(os.Mkdir(name, 0o700), os.Chown(name, 12345, -1)) }
	}
	err = errors.Join(os.Mkdir(killed, 0o700), os.Mkdir(early, 0o700), os.WriteFile(filepath.Join(elsewhere, "precious"), nil, 0o600))
	for name, make := range stay {
		err = errors.Join(err, make(filepath.Join(tmp, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	copyDir(t, filepath.Dir(used.Path()), killed)

	next, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free == nil {
		t.Fatal(free, err)
	}
	for _, name := range []string{killed, early} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	if _, err := os.Stat(used.Path()); err != nil {
		t.Errorf("what is in use is gone: %v", err)
	}
	closeTest(t, next)
	closeTest(t, used)
	for _, name := range filesIn(t, tmp) {
		if stay[filepath.Base(name)] == nil {
			t.Errorf("left behind: %s", name)
		}
		delete(stay, filepath.Base(name))
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "precious")); err != nil || len(stay) > 0 {
		t.Errorf("removed: %v, %v", err, slices.Collect(maps.Keys(stay)))
	}
}

// TestTemporariesAtOnce: programs that start at the same time do not take each other's
// folders for leftovers.
func TestTemporariesAtOnce(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	path := testPath(t)
	openTest(t, path, Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				db, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
				if err != nil || free == nil {
					t.Error(free, err)
					return
				}
				if _, err := os.Stat(db.Path()); err != nil {
					t.Error(err)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left := filesIn(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
