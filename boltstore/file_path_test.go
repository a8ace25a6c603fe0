package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// swaps are the operations that put another file in an open file's place.
func swaps(db *DB) map[string]func() error {
	return map[string]func() error{
		"compact": func() error { _, err := db.Compact(context.Background(), nil); return err },
	}
}

// storeMap stores a config map in a file, and hasMap says whether it is there.
func storeMap(t *testing.T, db *DB, name string) {
	t.Helper()
	s := claimTest(t, db, Claim{})
	defer s.Release()
	if err := s.Add(configMap("ns", name, 1, nil)); err != nil {
		t.Fatal(err)
	}
}

func hasMap(t *testing.T, db *DB, name string) {
	t.Helper()
	s := claimTest(t, db, Claim{})
	defer s.Release()
	if _, ok, err := s.GetByKey("ns/" + name); err != nil || !ok {
		t.Errorf("%s has no %s: %v", db.Path(), name, err)
	}
}

func skipOpenFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files that are open cannot be renamed")
	}
}

// TestMovedFile: A has the file open; it is moved or removed, and B makes another one at
// the path. B's file stays as it is, and A's errors say why. When A's file is back,
// everything works again.
func TestMovedFile(t *testing.T) {
	skipOpenFiles(t)
	for name, away := range map[string]func(path string) error{
		"renamed": func(path string) error { return os.Rename(path, path+".away") },
		"plain":   func(path string) error { return os.Rename(path, path+".away") },
		"linked":  func(path string) error { return errors.Join(os.Link(path, path+".away"), os.Remove(path)) },
	} {
		for op := range swaps(nil) {
			t.Run(name+"/"+op, func(t *testing.T) {
				path := testPath(t)
				ks := sealtest.Keyset()
				a := openTest(t, path, Options{Keyset: ks, plainRename: name == "plain"})
				storeMap(t, a, "of-a")
				if err := errors.Join(a.Err(), away(path)); err != nil {
					t.Fatal(err)
				}
				if err := swaps(a)[op](); !errors.Is(err, ErrMoved) {
					t.Errorf("nothing is there: %v", err)
				}
				if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("A has made a file: %v", err)
				}
				b := openTest(t, path, Options{Keyset: ks})
				storeMap(t, b, "of-b")
				if err := swaps(a)[op](); !errors.Is(err, ErrMoved) {
					t.Errorf("B's file is there: %v", err)
				}
				storeMap(t, b, "later")
				closeTest(t, b)
				b = openTest(t, path, Options{Keyset: ks})
				hasMap(t, b, "of-b")
				hasMap(t, b, "later")
				closeTest(t, b)
				hasMap(t, a, "of-a")
				noLeftovers(t, path)
				if aside := a.Aside(); len(aside) > 0 {
					t.Errorf("set aside: %v", aside)
				}

				if err := errors.Join(os.Rename(path, path+".of-b"), os.Rename(path+".away", path), swaps(a)[op](),
					a.Err()); err != nil {
					t.Errorf("it is back: %v", err)
				}
				storeMap(t, a, "later")
				closeTest(t, a)
				a = openTest(t, path, Options{Keyset: ks})
				defer closeTest(t, a)
				hasMap(t, a, "of-a")
				hasMap(t, a, "later")
			})
		}
	}
}

// TestMovedAtTheLastMoment: B's file comes between A's look and its rename.
func TestMovedAtTheLastMoment(t *testing.T) {
	needsExchange(t)
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain rename: %t", plain), func(t *testing.T) { movedAtTheLastMoment(t, plain) })
	}
}

func movedAtTheLastMoment(t *testing.T, plain bool) {
	for op := range swaps(nil) {
		t.Run(op, func(t *testing.T) {
			path := testPath(t)
			ks := sealtest.Keyset()
			var b *DB
			come := false
			a := openTest(t, path, Options{Keyset: ks, plainRename: plain, op: func(name, at string) error {
				if !come || name != "rename" {
					return nil
				}
				come = false
				if err := os.Rename(path, path+".away"); err != nil {
					return err
				}
				b = openTest(t, path, Options{Keyset: ks})
				storeMap(t, b, "of-b")
				return nil
			}})
			storeMap(t, a, "of-a")
			come = true
			if err := swaps(a)[op](); !errors.Is(err, ErrMoved) {
				t.Errorf("%v", err)
			}
			if b == nil {
				t.Fatal("nothing was renamed")
			}
			if err := b.Err(); err != nil {
				t.Errorf("B: %v", err)
			}
			storeMap(t, b, "later")
			closeTest(t, b)
			b = openTest(t, path, Options{Keyset: ks})
			hasMap(t, b, "of-b")
			hasMap(t, b, "later")
			closeTest(t, b)
			hasMap(t, a, "of-a")
			closeTest(t, a)
			noLeftovers(t, path)
		})
	}
}

// TestRelativePath: a program that changes its working folder keeps using its file.
func TestRelativePath(t *testing.T) {
	skipOpenFiles(t)
	dir, other := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	a := openTest(t, "test.db", Options{})
	storeMap(t, a, "of-a")
	t.Chdir(other)
	b := openTest(t, "test.db", Options{})
	storeMap(t, b, "of-b")
	if _, err := a.Compact(context.Background(), nil); err != nil {
		t.Errorf("compact: %v", err)
	}
	if err := errors.Join(a.Err(), b.Err()); err != nil {
		t.Error(err)
	}
	if want := filepath.Join(dir, "test.db"); a.Path() != want {
		t.Errorf("%s; want %s", a.Path(), want)
	}
	closeTest(t, a)
	closeTest(t, b)
	for name, path := range map[string]string{"of-a": filepath.Join(dir, "test.db"),
		"of-b": filepath.Join(other, "test.db")} {
		db := openTest(t, path, Options{})
		hasMap(t, db, name)
		closeTest(t, db)
	}
}

// TestMovedIsNoticed: the committer notices a moved file on its own, and so do AtPath and
// Err. A file that comes back counts as never moved; a compaction is not a move.
func TestMovedIsNoticed(t *testing.T) {
	skipOpenFiles(t)
	path := testPath(t)
	clk := testingclock.NewFakeClock(time.Now())
	db := openTest(t, path, Options{Clock: clk})
	defer closeTest(t, db)
	storeMap(t, db, "one")
	s := claimTest(t, db, Claim{Source: Source{Version: "v1", Resource: "others", Form: FormTyped}})
	moved := db.Moved()
	if _, err := db.Compact(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Err(), os.Rename(path, path+".away")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { clk.Step(time.Second); return isClosed(moved) })
	if err := db.Err(); !errors.Is(err, ErrMoved) || !errors.Is(db.AtPath(), ErrMoved) {
		t.Errorf("removed: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := db.Err(); !errors.Is(err, ErrMoved) {
		t.Errorf("another is there: %v", err)
	}
	if db.Moved() != moved {
		t.Error("it is the same move")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := db.Err(); err != nil || isClosed(db.Moved()) {
		t.Errorf("it is back: %v", err)
	}
	// Beside commits, which come before the next FlushInterval.
	moved = db.Moved()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	clk.Step(lookEvery)
	if err := s.Add(configMap("ns", "x", 1, nil)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return isClosed(moved) })
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// TestReplacedWhileItWasLookedAt: between Open's finding of damage and its replacement,
// the file is moved away and another program's comes.
func TestReplacedWhileItWasLookedAt(t *testing.T) {
	skipOpenFiles(t)
	for _, at := range []string{"create", "link", "rename"} {
		t.Run(at, func(t *testing.T) {
			path := testPath(t)
			good := filled(t)
			if err := os.WriteFile(path, good[:3*os.Getpagesize()], 0o600); err != nil {
				t.Fatal(err)
			}
			done := false
			db, err := Open(path, Options{op: func(op, _ string) error {
				if op != at || done {
					return nil
				}
				done = true
				return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, good, 0o600))
			}})
			if err != nil || !done {
				t.Fatalf("%v; %t", err, done)
			}
			defer closeTest(t, db)
			if err := db.Err(); err != nil {
				t.Error(err)
			}
			if is, err := os.ReadFile(path + ".away"); err != nil || len(is) != 3*os.Getpagesize() {
				t.Errorf("%d bytes %v", len(is), err)
			}
			r, err := db.Check()
			if err != nil || !r.Sound() || len(r.Sources) != 1 || r.Sources[0].Objects == 0 {
				t.Errorf("%+v %v", r, err)
			}
			if len(db.AsidePaths()) > 0 {
				t.Errorf("the good one was set aside: %s", db.AsidePaths())
			}
		})
	}
}

// TestConvertMoved: the conversion of a file at Open replaces no other file.
func TestConvertMoved(t *testing.T) {
	skipOpenFiles(t)
	path := testPath(t)
	if err := os.WriteFile(path, filled(t), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path, Options{Keyset: sealtest.Keyset(), step: func(name string) error {
		if name != "begin" {
			return nil
		}
		return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, []byte("another's"), 0o600))
	}})
	if !errors.Is(err, ErrMoved) {
		t.Error(err)
	}
	if is, err := os.ReadFile(path); string(is) != "another's" || err != nil {
		t.Errorf("%q %v", is, err)
	}
	noLeftovers(t, path)
}

// TestReadOnlyMoved: a reader's snapshot is of the file that it has open.
func TestReadOnlyMoved(t *testing.T) {
	skipOpenFiles(t)
	path := testPath(t)
	good := filled(t)
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	db := openTest(t, path, Options{ReadOnly: true})
	defer closeTest(t, db)
	if err := errors.Join(db.Err(), os.Rename(path, path+".away"),
		os.WriteFile(path, []byte("another's"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := db.Err(); !errors.Is(err, ErrMoved) {
		t.Error(err)
	}
	if db.Size() != int64(len(good)) {
		t.Errorf("%d bytes", db.Size())
	}
	s, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy.db")
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(s); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	closeTest(t, openTest(t, to, Options{ReadOnly: true}))
}

// TestMountedFile: a file that is a mount point, as in a container, cannot be replaced.
// The error says what to do, and the program goes on.
func TestMountedFile(t *testing.T) {
	busy := false
	o := Options{Keyset: sealtest.Keyset(), op: func(name, _ string) error {
		if busy && name == "rename" {
			return &os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EBUSY}
		}
		return nil
	}}
	path := testPath(t)
	says := func(err error) {
		t.Helper()
		if !errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), "mount its folder") {
			t.Errorf("%v", err)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	busy = true
	_, err := Open(path, o)
	says(err)
	busy = false
	db := openTest(t, path, o)
	defer closeTest(t, db)
	busy = true
	for _, swap := range swaps(db) {
		says(swap())
	}
	storeMap(t, db, "later")
	if err := db.Err(); err != nil {
		t.Error(err)
	}
	noLeftovers(t, path)
}

// waitFor waits until a condition holds, for a minute.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) { // it has no channel to wait on
		if time.Now().After(end) {
			t.Fatal("it does not come to hold")
		}
	}
}
