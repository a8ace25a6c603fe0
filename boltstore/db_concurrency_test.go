package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// Tests of two parts of the package at work at the same time.

// TestCompactEncrypted: an encrypted file is compacted, given its keyset.
func TestCompactEncrypted(t *testing.T) {
	path := testPath(t)
	o := Options{Keyset: sealtest.Keyset()}
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{Indexers: indexers})
	fill(t, s, 300, 20)
	closeTest(t, db)
	c, err := Compact(t.Context(), path, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.After >= c.Before {
		t.Errorf("%d bytes, before %d", c.After, c.Before)
	}
	db = openTest(t, path, o)
	s = claimTest(t, db, Claim{Indexers: indexers})
	if objs, err := s.ListErr(); err != nil || len(objs) == 0 {
		t.Fatalf("%d objects, %v", len(objs), err)
	}
}

// TestDeletesOutliveDictionary: a deleted object can be told after the dictionary that packed
// it is gone.
func TestDeletesOutliveDictionary(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	path := testPath(t)
	o := Options{Compression: CompressionZstd, Clock: clk, JournalAge: time.Minute, Window: time.Nanosecond, FlushInterval: 1000 * time.Hour}
	db := openTest(t, path, o)
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 100)
	relist(t, s, "100", RelistOptions{}, objs, 100)
	p := &testProducer{}
	s.Attach(p)
	h, _ := claimHandler(t, s, "test")
	handled(t, h)
	change := func(typ cache.DeltaType, i int) { // packed by the dictionary of now
		t.Helper()
		objs[i].(*corev1.Pod).ResourceVersion += "0"
		c, err := s.Prepare(typ, objs[i])
		must(t, err)
		p.put(&Batch{Changes: []*Change{c}})
		s.wake(false)
		p.stepped(t, clk)
	}
	if by := packedBy(t, s); by[format.PackedByDict] == 0 {
		t.Fatalf("packed by %v", by)
	}
	final, err := s.Prepare(cache.Deleted, cache.DeletedFinalStateUnknown{Key: keyOfObject(objs[0]), Obj: objs[0]})
	must(t, err)
	p.put(&Batch{Changes: []*Change{final}}) // its record is the one in the file
	s.wake(false)
	p.stepped(t, clk)
	change(cache.Deleted, 1)
	retrain(t, s)
	for i := 2; i < len(objs); i++ {
		change(cache.Updated, i)
	}
	s.SetTold(s.State().Seq)
	reopen := func() {
		t.Helper()
		closeTest(t, db)
		db = openTest(t, path, o)
		s = claimTest(t, db, podClaim())
	}
	reopen() // retires the dictionary
	clk.Step(time.Hour)
	p = &testProducer{}
	s.Attach(p)
	for range 20 { // trims the journal
		change(cache.Updated, 2)
		s.SetTold(s.State().Seq)
		clk.Step(time.Hour)
	}
	reopen() // removes it
	reopen()
	if v := dictVersions(t, s); len(v) != 1 {
		t.Fatalf("dictionaries %v", v)
	}
	h, _ = claimHandler(t, s, "test")
	for _, obj := range objs[:2] {
		is, ok, err := h.Read(keyOfObject(obj))
		if err != nil || !ok || len(is.Deleted) != 1 {
			t.Fatal(is, ok, err)
		}
		was := is.Deleted[0].Object
		if last, unknown := was.(cache.DeletedFinalStateUnknown); unknown {
			was = last.Obj
		}
		if pod, _ := was.(*corev1.Pod); pod == nil || keyOfObject(pod) != keyOfObject(obj) {
			t.Errorf("%s cannot be told: %v", keyOfObject(obj), was)
		}
	}
}

// TestLostDictionaryIsNotReplaced: an open file is replaced, and its newest dictionary
// cannot be saved. The next dictionary has another version, so it unpacks nothing that
// the lost one packed.
func TestLostDictionaryIsNotReplaced(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 150)
	relist(t, s, "150", RelistOptions{}, objs[:100], 100)
	retrain(t, s)
	for _, obj := range objs[100:] {
		if err := s.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	if by := packedBy(t, s); by[3] == 0 {
		t.Fatalf("packed by %v", by)
	}
	err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, pods.ID())
		return src.Root.Bucket(layout.BucketDicts).Delete(u32(3))
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	db.healing().heal(errTripped, db.h.now.Load())
	if err := s.Err(); !errors.Is(err, ErrDamaged) {
		t.Fatalf("it says %v", err)
	}
	s.packs.Forget()
	s.packing().trainStored()
	if v := dictVersions(t, s); v[len(v)-1] != 4 {
		t.Errorf("dictionaries %v", v)
	}
	want := map[string]any{}
	for _, obj := range objs {
		want[keyOfObject(obj)] = obj
	}
	for key, obj := range want {
		got, ok, err := s.GetByKey(key)
		if err != nil || !ok {
			continue // damaged, and it says so
		}
		sameObjects(t, key, []any{got}, []any{obj})
	}
	relist(t, s, "200", RelistOptions{}, objs, 100)
	serves(t, s, objs)
}

// TestReleasedStoreDoesNotWrite: a released store does not overwrite what a later claim
// has written.
func TestReleasedStoreDoesNotWrite(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	before := claimTest(t, db, Claim{Indexers: indexers})
	if err := before.Add(configMap("ns", "one", 1, nil)); err != nil {
		t.Fatal(err)
	}
	h, _ := claimHandler(t, before, "test")
	before.Release()
	s := claimTest(t, db, Claim{Indexers: indexers})
	if err := s.Add(configMap("ns", "two", 2, nil)); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
	if err := before.RemoveHandler("test"); !errors.Is(err, ErrClosed) {
		t.Errorf("remove a handler: %v", err)
	}
	if err := before.SetServer(listing.Server{Address: "other"}); !errors.Is(err, ErrClosed) {
		t.Errorf("set the server: %v", err)
	}
	if err := before.SetAside(); !errors.Is(err, ErrClosed) {
		t.Errorf("set aside: %v", err)
	}
	if err := before.AddIndexers(cache.Indexers{"more": indexers["words"]}); !errors.Is(err, ErrClosed) {
		t.Errorf("add indexers: %v", err)
	}
	before.told.Store(1000)
	before.Release()
	if objs, err := s.ListErr(); err != nil || len(objs) != 2 {
		t.Fatalf("%d objects, %v", len(objs), err)
	}
}

// TestCommitAfterFailedAbort: the disk fails while a relist is staged and aborted. Later
// commits are told, and no part of the relist is.
func TestCommitAfterFailedAbort(t *testing.T) {
	for _, size := range []int{1, 1000} { // blocks among others, and in buckets of their own
		db := openTest(t, testPath(t), Options{Window: time.Nanosecond, maxCommitBytes: 1500})
		s := claimTest(t, db, Claim{Indexers: indexers})
		srv := server{}
		for i := range 50 {
			srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, nil))
		}
		relist(t, s, "100", RelistOptions{}, srv.list(), 50)
		content := map[string]string{}
		rnd := rand.New(rand.NewPCG(1, 1))
		for range size {
			content[fmt.Sprint(rnd.Uint64())] = ""
		}
		for i := range 50 {
			srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+200, content))
		}
		r, err := s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Page(srv.list()); err != nil {
			t.Fatal(err)
		}
		db.h.writeMu.Lock()
		db.h.hook = func(*bolt.Tx) error { return errors.New("disk") }
		db.h.writeMu.Unlock()
		r.Abort()
		db.h.writeMu.Lock()
		db.h.hook = nil
		db.h.writeMu.Unlock()

		p := &testProducer{}
		s.Attach(p)
		for i := range 5 {
			p.add(t, s, configMap("other", fmt.Sprint("o", i), 300+i, content))
			p.wait(t)
		}
		got := journalFrom(t, s, 1)
		if len(got) != 5 {
			t.Fatalf("%d entries", len(got))
		}
		for i, e := range got {
			if e.Key != fmt.Sprint("other/o", i) {
				t.Errorf("%d is of %s", e.Seq, e.Key)
			}
		}
	}
}

// TestConversionBehindLink: the path is a link. Encrypting the file, or replacing a
// damaged one, leaves nothing readable where the link leads.
func TestConversionBehindLink(t *testing.T) {
	real, path := testPath(t), filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(real, path); err != nil {
		t.Skip("this system, or its user, makes no symbolic links: ", err)
	}
	db, err := Open(real, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{})
	if err := s.Add(configMap("ns", "one", 1, map[string]string{"a": "readable"})); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{AllowUnsafePath: true, Keyset: sealtest.Keyset()})
	db.healing().heal(errors.New("a test"), db.h.now.Load())
	if st, err := os.Lstat(path); err != nil || st.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v %v", st, err)
	}
	content, err := os.ReadFile(real)
	if err != nil || bytes.Contains(content, []byte("readable")) {
		t.Errorf("the file is not encrypted: %v", err)
	}
	s = claimTest(t, db, Claim{})
	if _, ok, err := s.GetByKey("ns/one"); !ok || err != nil {
		t.Error(ok, err)
	}
}

// TestReadFromBeforeTheHealing: a read that began before a list replaced the damaged
// part, and that ends after it, does not cause another list.
func TestReadFromBeforeTheHealing(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	objs := []runtime.Object{at(1, "a")}
	relist(t, s, "1", RelistOptions{}, objs, 10)
	read := func(during func()) {
		err := s.view(func(*sourceMeta, sourceTx) error {
			during()
			return ErrDamaged
		})
		if !errors.Is(s.note(err), ErrDamaged) {
			t.Fatal(err)
		}
	}
	read(func() {})
	if s.Err() == nil {
		t.Fatal("damage was not noted")
	}
	read(func() { relist(t, s, "2", RelistOptions{}, objs, 10) })
	if err := s.Err(); err != nil {
		t.Errorf("after the list: %v", err)
	}
	read(func() {})
	if s.Err() == nil {
		t.Error("new damage was not noted")
	}
}
