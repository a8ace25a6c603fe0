package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// TestJournalAge: blocks older than JournalAge are removed, however few they are, and
// never before all handlers have been told.
func TestJournalAge(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t),
		Options{Window: time.Nanosecond, JournalAge: time.Hour, FlushInterval: 1000 * time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	rv := 0
	add := func() {
		t.Helper()
		rv++
		p.add(t, s, configMap("a", fmt.Sprint(rv), rv, nil))
		p.stepped(t, clk)
	}
	kept := func(from, to uint64) {
		t.Helper()
		got := journalFrom(t, s, 1)
		if len(got) == 0 || got[0].Seq != from || got[len(got)-1].Seq != to || len(got) != int(to-from+1) {
			t.Fatalf("%d entries kept, not %d to %d", len(got), from, to)
		}
	}
	for range 5 {
		add()
	}
	s.Delivery.SetTold(5)
	clk.Step(59 * time.Minute)
	add()
	kept(1, 6)
	clk.Step(2 * time.Minute)
	add()
	kept(6, 7)
	clk.Step(48 * time.Hour) // 6 and 7 have not been told
	add()
	kept(6, 8)
	s.Delivery.SetTold(6)
	add()
	kept(7, 9)
}

// TestHandlerLag: a durable handler's lag is reported in keys, in deletes, in bytes of the
// set, and in the time since the oldest key became pending.
func TestHandlerLag(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: 1000 * time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	h, _ := claimHandler(t, s, "test")
	handled(t, h)
	rv := 0
	change := func(typ cache.DeltaType, names ...string) {
		t.Helper()
		var b Batch
		for _, name := range names {
			rv++
			c, err := s.Feed.Prepare(typ, configMap("a", name, rv, nil))
			must(t, err)
			b.Changes = append(b.Changes, c)
		}
		p.put(&b)
		s.wake(false)
		p.stepped(t, clk)
	}
	bytes := func() (n uint64) {
		must(t, db.h.view(func(tx *bolt.Tx) error {
			src, _ := db.h.source(tx, s.id)
			return src.pending("test").Each(func(_, v []byte) { n += uint64(len(v)) })
		}))
		return n
	}
	is := func(keys, deleted uint64, oldest string) {
		t.Helper()
		want := time.Duration(0)
		if oldest != "" {
			p, ok, err := h.Read(oldest)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			want = clk.Now().Sub(p.Since)
		}
		if st := handlerState1(t, s); st.Pending != keys || st.Deleted != deleted || st.Bytes != bytes() ||
			st.Age != want || st.AgeUnknown {
			t.Errorf("%+v; not %d keys, %d deletes, %d bytes, %v", st, keys, deleted, bytes(), want)
		}
	}
	acknowledge := func(key string) {
		t.Helper()
		p, ok, err := h.Read(key)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		h.Acknowledge(key, p.Receipt)
	}
	is(0, 0, "")
	change(cache.Added, "one")
	since := clk.Now()
	clk.Step(10 * time.Minute)
	change(cache.Added, "two", "three")
	clk.Step(20 * time.Minute)
	is(3, 0, "a/one")
	if age := handlerState1(t, s).Age; age < 30*time.Minute || age > clk.Now().Sub(since)+time.Second {
		t.Errorf("the oldest is %v old", age)
	}
	change(cache.Updated, "one") // it has been pending since before
	is(3, 0, "a/one")
	change(cache.Deleted, "three")
	is(3, 1, "a/one")
	acknowledge("a/one")
	change(cache.Added, "four")
	is(3, 1, "a/two")
	acknowledge("a/three")
	acknowledge("a/two")
	change(cache.Added, "five")
	clk.Step(time.Second)
	is(2, 0, "a/four")
}

// TestOnlyUncleanBootsAreVerified: a file that was closed in order, or is opened again
// in the same boot, is not verified at Open. Its damage is noticed when it is read.
func TestOnlyUncleanBootsAreVerified(t *testing.T) {
	if osfile.BootID() == "" || osfile.BootID() == osfile.UnknownBoot {
		t.Skip("this system does not tell its boot id")
	}
	path := testPath(t)
	fillSmall(t, path, Options{Durability: DurabilityProcess})
	for _, c := range []struct {
		clean    bool
		boot     string
		verified bool
	}{
		{true, "another boot", false}, {true, osfile.BootID(), false}, {false, osfile.BootID(), false},
		{false, "another boot", true},
	} {
		dir := copied(t, filepath.Dir(path))
		path := filepath.Join(dir, filepath.Base(path))
		b, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Update(func(tx *bolt.Tx) error {
			var h header
			if err := format.Get(tx.Bucket(layout.BucketFile), layout.KeyHeader, &h); err != nil {
				return err
			}
			if !h.Clean || h.BootID != osfile.BootID() {
				t.Errorf("after an orderly end it says %+v", h)
			}
			h.Clean, h.BootID = c.clean, c.boot
			hd := &handle{}
			src, _ := hd.source(tx, configMaps.ID())
			k, _ := src.contents().Items.Bucket.Cursor().First()
			err = src.contents().Items.Bucket.Delete(k)
			return errors.Join(err, format.Put(tx.Bucket(layout.BucketFile), layout.KeyHeader, h))
		})
		if err := errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
		db, err := Open(path, Options{Durability: DurabilityProcess})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(db.AsidePaths()) > 0; got != c.verified {
			t.Errorf("clean %v, boot %q: verified %v", c.clean, c.boot, got)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeepCorrupt: the oldest files that were set aside are removed, by number and by
// size. The newest one stays whatever the bounds are.
func TestKeepCorrupt(t *testing.T) {
	const content = "not ours" // 8 bytes
	for _, c := range []struct {
		o    Options
		kept int
	}{
		{Options{keepCorrupt: 1}, 1}, {Options{keepCorrupt: 5}, 5}, {Options{keepCorrupt: 100}, 6},
		{Options{keepCorrupt: 5, keepCorruptBytes: 16}, 2}, {Options{keepCorrupt: 5, keepCorruptBytes: 23}, 2},
		{Options{keepCorruptBytes: 1}, 1},
	} {
		clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
		c.o.Clock, c.o.ReplaceForeign = clk, true
		path := testPath(t)
		var names []string
		for range 6 {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			db := openTest(t, path, c.o)
			names = append(names, db.AsidePaths()...)
			closeTest(t, db)
			clk.Step(time.Hour)
		}
		if len(names) != 6 {
			t.Fatalf("set aside %q", names)
		}
		for i, name := range names {
			if _, err := os.Stat(name); (err == nil) != (i >= 6-c.kept) {
				t.Errorf("keep %d, %d bytes: file %d of 6: %v", c.o.keepCorrupt, c.o.keepCorruptBytes, i+1, err)
			}
		}
	}
}

// TestKeepCorruptAfterTheClockRestarts: the file that was just set aside stays, even if
// earlier ones have later times. It may be another program's.
func TestKeepCorruptAfterTheClockRestarts(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	path := testPath(t)
	for i := range 6 {
		if i == 4 {
			clk.SetTime(time.Unix(30, 0))
		}
		content := fmt.Sprint("not ours ", i)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		db := openTest(t, path, Options{Clock: clk, ReplaceForeign: true})
		names, kept := db.AsidePaths(), db.Aside()
		closeTest(t, db)
		if len(names) != 1 || len(kept) != min(i+1, 3) {
			t.Fatalf("file %d: set aside %q, kept %v", i, names, kept)
		}
		if b, err := os.ReadFile(names[0]); err != nil || string(b) != content {
			t.Errorf("file %d: %q %v", i, b, err)
		}
		clk.Step(time.Hour)
	}
}

// TestKeepCorruptOfAnyName: files that were set aside are found and bounded, whatever
// characters are in the file's name.
func TestKeepCorruptOfAnyName(t *testing.T) {
	for _, name := range []string{`a\b.db`, `\`, "a[1]*?.db", "[", "*", "a\nb.db", "%s.db", "\xff.db"} {
		path := filepath.Join(t.TempDir(), name)
		for range 5 {
			if err := os.WriteFile(path, []byte("not ours"), 0o600); err != nil {
				t.Skip(err) // the system has no such names
			}
			closeTest(t, openTest(t, path, Options{ReplaceForeign: true}))
		}
		db := openTest(t, path, Options{})
		if all := db.Aside(); len(all) != 3 {
			t.Errorf("%q: %v", name, all)
		}
		closeTest(t, db)
		left, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(left) != 4 {
			t.Errorf("%q: %v %v", name, left, err)
		}
	}
}
