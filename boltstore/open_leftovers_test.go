package boltstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestDiedBetweenExchanges: another file comes to the path, and the program dies before
// that file has its name back. The next Open keeps it.
func TestDiedBetweenExchanges(t *testing.T) {
	needsExchange(t)
	for op := range swaps(nil) {
		t.Run(op, func(t *testing.T) {
			path, dead := testPath(t), testPath(t)
			come, died := false, false
			a := openTest(t, path, Options{Keyset: sealtest.Keyset(), op: func(name, _ string) error {
				switch {
				case come && name == "rename":
					come = false
					if err := os.Rename(path, path+".away"); err != nil {
						return err
					}
					return os.WriteFile(path, []byte("the newcomer"), 0o600)
				case name == "exchange":
					died = true
					for _, f := range filesIn(t, filepath.Dir(path)) {
						if err := os.Link(f, filepath.Join(filepath.Dir(dead), filepath.Base(f))); err != nil {
							return err
						}
					}
				}
				return nil
			}})
			storeMap(t, a, "of-a")
			come = true
			_ = swaps(a)[op]() // which refuses
			closeTest(t, a)
			if !died {
				t.Fatal("no names were exchanged")
			}
			db := openTest(t, dead, Options{Keyset: sealtest.Keyset()})
			hasMap(t, db, "of-a")
			closeTest(t, db)
			noLeftovers(t, dead)
			kept := 0
			for _, f := range filesIn(t, filepath.Dir(dead)) {
				if b, err := os.ReadFile(f); err == nil && string(b) == "the newcomer" {
					kept++
				}
			}
			if kept != 1 {
				t.Errorf("the newcomer is there %d times", kept)
			}
		})
	}
}

// TestNewcomerWithoutItsName: another file comes to the path while Open replaces the one
// there, and cannot get its name back. Open says where that file is now.
func TestNewcomerWithoutItsName(t *testing.T) {
	needsExchange(t)
	good := filled(t)
	for name, was := range map[string][]byte{"empty": nil, "damaged": good[:3*os.Getpagesize()]} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			if err := errors.Join(os.WriteFile(path, was, 0o600), os.WriteFile(path+".good", good, 0o600)); err != nil {
				t.Fatal(err)
			}
			errDisk := errors.New("the disk fails")
			db, err := Open(path, Options{op: func(op, _ string) error {
				if op == "exchange" {
					return errDisk
				}
				if _, serr := os.Stat(path + ".good"); op == "rename" && serr == nil {
					return os.Rename(path+".good", path)
				}
				return nil
			}})
			if err == nil {
				closeTest(t, db)
			}
			kept := ""
			for _, f := range filesIn(t, filepath.Dir(path)) {
				if b, err := os.ReadFile(f); err == nil && bytes.Equal(b, good) {
					kept = f
				}
			}
			if !errors.Is(err, errDisk) || kept == "" || !strings.Contains(err.Error(), kept) {
				t.Errorf("it is %q: %v", kept, err)
			}
			closeTest(t, openTest(t, path, Options{}))
		})
	}
}

// TestAnotherUnderTheSameInode: Open does not set aside a file that was written since
// its check, or that has a removed file's inode.
func TestAnotherUnderTheSameInode(t *testing.T) {
	path := testPath(t)
	good := filled(t)
	write := func(b []byte, at time.Time) {
		if err := errors.Join(os.WriteFile(path, b, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for name, later := range map[string]time.Duration{"larger": 0, "later": time.Second} {
		t.Run(name, func(t *testing.T) {
			damaged := good[:3*os.Getpagesize()]
			if later > 0 {
				damaged = make([]byte, len(good))
			}
			write(damaged, now)
			db, err := Open(path+".other", Options{Keyset: sealtest.Default()})
			if err != nil {
				t.Fatal(err)
			}
			closeTest(t, db)
			db.path = path
			if db.judged.file, err = os.Stat(path); err != nil {
				t.Fatal(err)
			}
			write(good, now.Add(later))
			if err := db.opening().replace(ErrDamaged); !errors.Is(err, errReplaced) {
				t.Errorf("replaced: %v", err)
			}
			if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, good) {
				t.Error("it is another file now: ", err)
			}
		})
	}
}
