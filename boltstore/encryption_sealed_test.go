package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// leaf is a key and its value in a file.
type leaf struct {
	path [][]byte
	k, v []byte
}

func leaves(t *testing.T, db *DB) (all []leaf) {
	t.Helper()
	var walk func(path [][]byte, b *bolt.Bucket) error
	walk = func(path [][]byte, b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			k = bytes.Clone(k)
			if v == nil {
				return walk(append(slices.Clip(path), k), b.Bucket(k))
			}
			all = append(all, leaf{path, k, bytes.Clone(v)})
			return nil
		})
	}
	err := db.h.view(func(tx *bolt.Tx) error {
		return walk([][]byte{layout.BucketSources}, tx.Bucket(layout.BucketSources))
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sealedValues returns the values of an encrypted file that are sealed, by their place.
func sealedValues(t *testing.T, db *DB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, l := range leaves(t, db) {
		if !slices.ContainsFunc(l.path, func(b []byte) bool { return bytes.Equal(b, layout.BucketIndex) }) {
			all[fmt.Sprintf("%q %q", l.path, l.k)] = l.v
		}
	}
	return all
}

// put writes to bbolt without sealing.
func put(t *testing.T, db *DB, path [][]byte, k, v, drop []byte) {
	t.Helper()
	err := db.h.update(func(tx *bolt.Tx) error {
		b := under(tx, path)
		if drop != nil {
			if err := b.Delete(drop); err != nil {
				return err
			}
		}
		return b.Put(k, v)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// sealedFile has 8 objects, one under a key and with a value too long to be
// inline, and two journal blocks.
func sealedFile(t *testing.T) (*DB, map[string]*corev1.ConfigMap) {
	t.Helper()
	db := openTest(t, testPath(t),
		Options{Keyset: sealtest.Keyset(), Durability: DurabilityProcess, Window: time.Nanosecond})
	s := claimTest(t, db, Claim{Indexers: indexers})
	want := map[string]*corev1.ConfigMap{}
	p := &testProducer{}
	s.Feed.Attach(p)
	for i := range 8 {
		o := configMap("ns", fmt.Sprint("cm", i), i+1,
			map[string]string{"words": "a,b", "long": strings.Repeat("x", 600*(i%2))})
		if i == 7 {
			o.Name = strings.Repeat("n", 600)
		}
		want["ns/"+o.Name] = o
		p.add(t, s, o)
		p.wait(t)
	}
	s.Release()
	return db, want
}

// readSealed reads everything and fails if any of it is wrong. It says whether anything
// was missing or an error.
func readSealed(t *testing.T, db *DB, want map[string]*corev1.ConfigMap) (noticed bool) {
	t.Helper()
	s, err := db.View(configMaps)
	if err != nil {
		return true
	}
	check := func(objs []any, err error) {
		noticed = noticed || err != nil || len(objs) != len(want)
		for _, o := range objs {
			sameObjects(t, "read", []any{want[keyOfObject(o)]}, []any{o})
		}
	}
	check(s.ListErr())
	check(s.ByIndex("words", "a"))
	check(s.ByIndex("words", "b"))
	var one []any
	for key := range want {
		o, _, err := s.GetByKey(key)
		noticed = noticed || err != nil
		if o != nil {
			one = append(one, o)
		}
	}
	check(one, nil)
	for seq := uint64(1); seq <= 8; {
		entries, err := newClaimed(s).Feed.ReadJournal(seq)
		noticed = noticed || err != nil || len(entries) == 0
		if err != nil || len(entries) == 0 {
			break
		}
		for _, e := range entries {
			o, err := e.Object()
			noticed = noticed || err != nil
			if err == nil {
				sameObjects(t, "journal", []any{want[e.Key]}, []any{o})
			}
			seq = e.Seq + 1
		}
	}
	return noticed
}

// TestFlippedSealedBytes: Check notices any flipped byte in a key or value of an
// encrypted file, and no read is wrong.
func TestFlippedSealedBytes(t *testing.T) {
	db, want := sealedFile(t)
	if readSealed(t, db, want) {
		t.Fatal("not sound to begin with")
	}
	n, checked := 0, 0
	step := 29
	if few() {
		step = 89
	}
	for _, l := range leaves(t, db) {
		plain := string(l.path[len(l.path)-1]) == string(layout.BucketJournal) // its keys are
		for i := 0; i < len(l.k)+len(l.v); i++ {
			if n++; n%step != 0 && i > 0 || plain && i < len(l.k) {
				continue
			}
			k, v := bytes.Clone(l.k), bytes.Clone(l.v)
			if i < len(k) {
				if bytes.Equal(l.k, layout.KeyMeta) {
					continue
				}
				k[i] ^= 0x40
			} else {
				v[i-len(k)] ^= 0x40
			}
			put(t, db, l.path, k, v, l.k)
			checked++
			readSealed(t, db, want)
			if r, err := db.Check(); err != nil || r.Sound() {
				t.Fatalf("%q: byte %d of the key %x and the value %x was flipped, and it was not noticed: %v", l.path,
					i, l.k, l.v, err)
			}
			put(t, db, l.path, l.k, l.v, k)
		}
	}
	t.Logf("%d of %d bytes", checked, n)
	if checked < 200 || readSealed(t, db, want) {
		t.Fatal("the test does not test")
	}
}

// TestMovedSealedValues: a value sealed for one place is not accepted at another.
func TestMovedSealedValues(t *testing.T) {
	db, want := sealedFile(t)
	all := leaves(t, db)
	moved := 0
	for i, a := range all {
		for _, b := range all[i+1:] {
			if len(a.v) == 0 || len(b.v) == 0 || !slices.EqualFunc(a.path, b.path, bytes.Equal) {
				continue
			}
			put(t, db, a.path, a.k, b.v, a.k)
			put(t, db, b.path, b.k, a.v, b.k)
			moved++
			readSealed(t, db, want)
			if r, err := db.Check(); err != nil || r.Sound() {
				t.Fatalf("%q: the values of %x and %x were swapped, and it was not noticed: %v", a.path, a.k, b.k, err)
			}
			put(t, db, a.path, a.k, a.v, a.k)
			put(t, db, b.path, b.k, b.v, b.k)
		}
	}
	if moved < 50 || readSealed(t, db, want) {
		t.Fatalf("%d moved", moved)
	}
	// The records of one source do not pass for another's.
	other := claimTest(t, db, Claim{Source: podSource, Example: &corev1.ConfigMap{}})
	if err := other.Add(configMap("ns", "cm0", 1, nil)); err != nil {
		t.Fatal(err)
	}
	other.Release()
	name := []byte(podSource.ID())
	for _, l := range all {
		if string(l.path[len(l.path)-1]) == string(layout.BucketItems) {
			path := slices.Clone(l.path)
			path[1] = name
			put(t, db, path, l.k, l.v, nil)
		}
	}
	if r, err := db.Check(); err != nil || r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
	if s, err := db.View(Source{Version: "v1", Resource: "pods", Form: FormTyped}); err == nil {
		if objs, err := s.ListErr(); !errors.Is(err, ErrDamaged) || len(objs) > 1 {
			t.Fatal(objs, err)
		}
	}
	// Nor does its meta.
	for _, l := range all {
		if bytes.Equal(l.k, layout.KeyMeta) {
			put(t, db, [][]byte{layout.BucketSources, name}, l.k, l.v, nil)
		}
	}
	if s, err := db.View(podSource); err == nil {
		if objs, err := s.ListErr(); !errors.Is(err, ErrDamaged) {
			t.Fatal(objs, err)
		}
	}
	// In order again, for the check at the end.
	err := db.h.update(func(tx *bolt.Tx) error { return tx.Bucket(layout.BucketSources).DeleteBucket(name) }, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// TestWalkAcrossRotations: a walk over the file's pages visits each object once, and Before
// knows its place. The next life continues it, also by another data key.
func TestWalkAcrossRotations(t *testing.T) {
	db := openTest(t, testPath(t), Options{Keyset: sealtest.Keyset(), Durability: DurabilityProcess})
	s := claimTest(t, db, Claim{})
	var objs []any
	for i := range 100 {
		objs = append(objs, configMap("ns", fmt.Sprint("cm", i), i+1, nil))
	}
	if err := s.Replace(objs, "100"); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var from []byte
	for page := 0; ; page++ {
		p, err := s.Page(from, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range p.Keys {
			if seen[k] {
				t.Fatalf("%s again in page %d", k, page)
			}
			seen[k] = true
		}
		if from = p.Next; from == nil {
			break
		}
		for _, o := range objs {
			if key := keyOfObject(o); Before(key, from) != seen[key] {
				t.Fatalf("page %d: Before(%s) = %v", page, key, !seen[key])
			}
		}
		if page%3 == 1 {
			s.Release()
			closeTest(t, db)
			if page == 4 {
				changeHeader(t, db.path, keysDue)
			}
			db = openTest(t, db.path, db.opts)
			s = claimTest(t, db, Claim{})
		}
	}
	if len(seen) != len(objs) {
		t.Fatalf("%d of %d", len(seen), len(objs))
	}
}

// TestKeysAreNotSealed: items and entries are in package index's form, also in an encrypted
// file.
func TestKeysAreNotSealed(t *testing.T) {
	for _, o := range []Options{{decrypt: true}, {Keyset: sealtest.Keyset()}} {
		db := openTest(t, testPath(t), o)
		s := claimTest(t, db, Claim{Indexers: indexers})
		if err := s.Add(configMap("ns", "a", 1, map[string]string{"words": "w"})); err != nil {
			t.Fatal(err)
		}
		var got [][]byte
		for _, l := range leaves(t, db) {
			got = append(got, l.k)
		}
		for _, k := range [][]byte{index.AppendKey(nil, "ns/a"), index.AppendEntry(nil, "w", "ns/a")} {
			if !slices.ContainsFunc(got, func(b []byte) bool { return bytes.Equal(b, k) }) {
				t.Errorf("encrypted %v: %q is not in the file", db.Encrypted(), k)
			}
		}
	}
}

func under(tx *bolt.Tx, path [][]byte) *bolt.Bucket {
	b := tx.Bucket(path[0])
	for _, name := range path[1:] {
		b = b.Bucket(name)
	}
	return b
}
