package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestConversionCutAtEachStep: a crash or disk error at any step of a conversion or
// rotation leaves the old file or the new one. The next Open completes it and cleans
// up.
func TestConversionCutAtEachStep(t *testing.T) {
	ks := sealtest.Keyset()
	for name, tc := range map[string]struct {
		before, after Options
	}{
		"encrypt": {Options{}, Options{Keyset: ks}},
		"decrypt": {Options{Keyset: ks}, Options{Keyset: ks, decrypt: true}},
		"rotate":  {Options{Keyset: ks}, Options{Keyset: ks}},
	} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			fillCluster(t, path, tc.before, 30)
			ro := tc.before
			ro.ReadOnly = true
			db := openTest(t, path, ro)
			want, entries := contentOf(t, db)
			closeTest(t, db)
			if name == "rotate" {
				changeHeader(t, path, keysDue)
			}
			errCut := errors.New("cut here")
			olds, news, done := 0, 0, false
			for k := 1; !done; k++ {
				if k > 200 {
					t.Fatal("it does not end")
				}
				dir := copied(t, filepath.Dir(path))
				file := filepath.Join(dir, "test.db")
				var crashed string
				steps := 0
				o := tc.after
				o.maxCommitBytes = 64 << 10
				o.step = func(string) error {
					if steps++; steps == k {
						crashed = copied(t, dir)
						return errCut
					}
					return nil
				}
				db, err := Open(file, o)
				if err == nil {
					err = db.Close()
				}
				if done = steps < k; done {
					if err != nil {
						t.Fatal(err)
					}
					crashed = copied(t, dir)
					// which goes on with the keys that it has
				} else if name != "rotate" && !errors.Is(err, errCut) || name == "rotate" && err != nil {
					t.Fatalf("step %d: %v", k, err)
				}
				for what, dir := range map[string]string{"crash": crashed, "error": dir} {
					file := filepath.Join(dir, "test.db")
					is := Options{Keyset: ks, ReadOnly: true, decrypt: true}
					db, err := Open(file, is)
					if err != nil {
						t.Fatalf("step %d, after the %s: %v", k, what, err)
					}
					got, n := contentOf(t, db)
					sameObjects(t, fmt.Sprint("step ", k, " ", what), want, got)
					if n != entries {
						t.Fatalf("%d entries of %d", n, entries)
					}
					if old := db.Encrypted() == (tc.before.Keyset != nil); old && name != "rotate" || db.KeysDue() {
						olds++
					} else {
						news++
					}
					closeTest(t, db)
					db, err = Open(file, tc.after)
					if err != nil {
						t.Fatal(err)
					}
					got, _ = contentOf(t, db)
					sameObjects(t, fmt.Sprint("step ", k, " ", what, " again"), want, got)
					if db.Encrypted() == tc.after.decrypt || db.KeysDue() {
						t.Fatalf("step %d, after the %s: not converted", k, what)
					}
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					if m, _ := os.ReadDir(dir); len(m) != 1 {
						t.Fatalf("step %d, after the %s: left %v", k, what, m)
					}
				}
			}
			t.Logf("old %d times, new %d times", olds, news)
			if olds < 10 || news < 2 {
				t.Fatal("it was not cut as it should be")
			}
		})
	}
}

// TestRotationFollowsKeyset: another primary key in the keyset leads to a new data key,
// even if the first try is cut. Then the older key is not needed.
func TestRotationFollowsKeyset(t *testing.T) {
	path, file := testPath(t), filepath.Join(t.TempDir(), "keyset.json")
	if err := seal.Generate(file); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fillCluster(t, path, Options{Keyset: seal.File(file)}, 20)
	db := openTest(t, path, Options{Keyset: seal.File(file)})
	before := sealedBy(t, db.h.seal)
	closeTest(t, db)
	if err := seal.Rotate(file); err != nil {
		t.Fatal(err)
	}
	// Cut: the envelope is the new key's at once, the data key is the old one.
	db = openTest(t, path, Options{Keyset: seal.File(file), step: func(string) error { return errors.New("cut here") }})
	if !opens(db.h.seal, before) || !db.KeysDue() {
		t.Fatal("a new data key")
	}
	closeTest(t, db)
	old := filepath.Join(t.TempDir(), "first.json")
	if err := os.WriteFile(old, first, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{Keyset: seal.File(old)}); !errors.Is(err, ErrKeyset) {
		t.Fatal("the old key alone opens it", err)
	}
	db = openTest(t, path, Options{Keyset: seal.File(file)})
	if opens(db.h.seal, before) || db.KeysDue() {
		t.Fatal("the data key was not rotated")
	}
	now := sealedBy(t, db.h.seal)
	contentOf(t, db)
	closeTest(t, db)
	db = openTest(t, path, Options{Keyset: seal.File(file)})
	if !opens(db.h.seal, now) {
		t.Fatal("rotated again")
	}
}

// TestRotationFailsAtEachOperation: a failed change of the data key leaves a usable file,
// and the next Open makes the key.
func TestRotationFailsAtEachOperation(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keyset.json")
	if err := seal.Generate(keys); err != nil {
		t.Fatal(err)
	}
	made := testPath(t)
	fillCluster(t, made, Options{Keyset: seal.File(keys)}, 20)
	db := openTest(t, made, Options{Keyset: seal.File(keys), ReadOnly: true})
	want, _ := contentOf(t, db)
	closeTest(t, db)
	if err := seal.Rotate(keys); err != nil {
		t.Fatal(err)
	}
	for k, due, n := 1, 0, 1; n >= k; k++ {
		n = 0
		path := filepath.Join(copied(t, filepath.Dir(made)), "test.db")
		o := Options{Keyset: seal.File(keys), op: func(op, _ string) error {
			if n++; n == k {
				return errors.New("the disk fails")
			}
			return nil
		}}
		db := openTest(t, path, o)
		db.files.Before = nil // what follows is not part of it
		got, _ := contentOf(t, db)
		sameObjects(t, fmt.Sprint("failure ", k), want, got)
		if db.KeysDue() {
			due++
		}
		closeTest(t, db)
		db = openTest(t, path, Options{Keyset: seal.File(keys)})
		if db.KeysDue() {
			t.Errorf("failure %d: not rotated at the next Open", k)
		}
		got, _ = contentOf(t, db)
		sameObjects(t, fmt.Sprint("after failure ", k), want, got)
		closeTest(t, db)
		onlyFile(t, path)
		if n < k && due < 4 {
			t.Errorf("%d failures left the keys as they were", due)
		}
	}
}

// TestConvertUnknownPart: if damage has changed the name of a bucket, the file can still
// be converted. The file is set aside, its known parts are converted, and the source is
// read from the server.
func TestConvertUnknownPart(t *testing.T) {
	for _, name := range []string{"journal", "handlers", "items"} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			srv := stored(t, path, 200, 3, Options{decrypt: true})
			b, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = b.Update(func(tx *bolt.Tx) error {
				src := tx.Bucket(layout.BucketSources).Bucket([]byte(configMaps.ID()))
				flipped := []byte(name)
				flipped[1] ^= 4
				to, err := src.CreateBucket(flipped)
				if err != nil {
					return err
				}
				if from := src.Bucket([]byte(name)); from != nil && name == "items" {
					return src.DeleteBucket([]byte(name))
				}
				return to.Put([]byte("k"), []byte("v"))
			})
			if err = errors.Join(err, b.Close()); err != nil {
				t.Fatal(err)
			}
			db := openTest(t, path, Options{Keyset: sealtest.Keyset()})
			if len(db.AsidePaths()) != 1 || !db.Encrypted() {
				t.Errorf("set aside %q, encrypted: %v", db.AsidePaths(), db.Encrypted())
			}
			s := claimTest(t, db, Claim{})
			if s.Err() == nil {
				t.Error("nothing says that it is to be read again")
			}
			if name != "items" {
				sameObjects(t, "after", srv.anys(), s.List())
			}
			closeTest(t, db)
			if db = openTest(t, path, Options{Keyset: sealtest.Keyset()}); len(db.AsidePaths()) > 0 {
				t.Error("it is set aside again")
			}
		})
	}
}
