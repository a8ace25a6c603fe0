package stores_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

// TestDamagedEntry: an entry that is lost to damage counts as expired, and can be stored
// again. When the store is opened with damage it begins empty.
func TestDamagedEntry(t *testing.T) {
	path := newPath(t)
	fill := func() {
		db := open(t, path, boltstore.Options{})
		s := must(stores.NewTTLStore(claim(t, db), time.Hour))(t)
		for _, name := range []string{"bad", "good"} {
			must(0, s.Add(&token{name, "value of the " + name}))(t)
		}
		closeDB(t, db)
	}
	damage := func() {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(b, []byte("value of the bad")) {
			t.Fatal("not found", err)
		}
		must(0, os.WriteFile(path, bytes.ReplaceAll(b, []byte("value of the bad"), []byte("value of the BAD")),
			0o600))(t)
	}
	fill()
	damage()
	db := open(t, path, boltstore.Options{ObjectMemory: -1})
	s := must(stores.NewTTLStore(claim(t, db), time.Hour))(t)
	if got := text(s.List()); got != "[]" {
		t.Error("it begins with ", got)
	}
	must(0, s.Add(&token{"bad", "again"}))(t)
	if got := text(s.List()); got != "[bad=again]" {
		t.Error(got)
	}
	closeDB(t, db)
	fill()
	db = open(t, path, boltstore.Options{ObjectMemory: -1})
	s = must(stores.NewTTLStore(claim(t, db), time.Hour))(t)
	damageOpen(t, path, "value of the bad", "value of the BAD")
	if obj, exists, err := s.GetByKey("bad"); obj != nil || exists || err != nil {
		t.Error(obj, exists, err)
	}
	if got := text(s.List()); got != "[good=value of the good]" {
		t.Error(got)
	}
	must(0, s.Add(&token{"bad", "again"}))(t)
	if got := text(s.List()); got != "[bad=again good=value of the good]" {
		t.Error(got)
	}
	r, err := db.Check()
	if err != nil || r.Sound() {
		t.Error("the damage does not show: ", err)
	}
	must(0, db.Close())(t)
	db = open(t, path, boltstore.Options{})
	must(stores.NewTTLStore(claim(t, db), time.Hour))(t)
	closeDB(t, db) // it is sound again
}

// TestDamagedByKey: a store by key reports entries that are lost to damage. No server
// will list it, so Replace mends the source, and so does making the store again: the rest
// stays.
func TestDamagedByKey(t *testing.T) {
	path := newPath(t)
	var db *boltstore.DB
	var c *boltstore.Claimed
	var s cache.ThreadSafeStore
	var errs []error
	reopen := func() {
		t.Helper()
		errs = nil
		db = open(t, path, boltstore.Options{ObjectMemory: -1})
		c = claim(t, db)
		s = must(stores.NewThreadSafeStore(c, func(err error) { errs = append(errs, err) }))(t)
	}
	is := func(what, want string) {
		t.Helper()
		if got := text(s.List()); got != want || len(errs) > 0 {
			t.Errorf("%s: %s, want %s, errors %v", what, got, want, errs)
		}
		objs, _, err := c.ListWhole(boltstore.Contents{})
		if err != nil || text(objs) != want {
			t.Errorf("%s: whole are %s, %v", what, text(objs), err)
		}
		if r, err := db.Check(); err != nil || !r.Sound() || c.Err() != nil || c.State().Degraded != "" {
			t.Errorf("%s: not sound: %+v %v %v", what, r, err, c.Err())
		}
	}
	damaged := func() { // while the file is open
		t.Helper()
		s.Add("bad", &token{"bad", "value of the bad"})
		s.Add("good", &token{"good", "value of the good"})
		is("before", "[bad=value of the bad good=value of the good]")
		damageOpen(t, path, "value of the bad", "value of the BAD")
		if _, exists := s.Get("bad"); exists || len(errs) != 1 || !errors.Is(errs[0], boltstore.ErrDamaged) {
			t.Errorf("the damage is not reported: %v", errs)
		}
		errs = nil
	}

	reopen()
	damaged()
	s.Replace(map[string]any{"bad": &token{"bad", "again"}, "new": &token{"new", "x"}}, "7")
	is("replaced", "[bad=again new=x]")

	s.Delete("new")
	damaged()
	s.Update("bad", &token{"bad", "again"})
	if got := text(s.List()); got != "[bad=again good=value of the good]" || len(errs) > 0 {
		t.Errorf("stored again: %s, %v", got, errs)
	}
	must(0, db.Close())(t)
	reopen()
	is("opened again", "[bad=again good=value of the good]")

	damaged()
	must(0, db.Close())(t)
	reopen()
	is("opened with damage", "[good=value of the good]")
	if got := must(c.IndexKeys("word", "good"))(t); len(got) != 1 || c.State().ResourceVersion != "7" {
		t.Errorf("by index %v, at %q", got, c.State().ResourceVersion)
	}

	s.Add(strings.Repeat("long", 1000), &token{"bad", "value of the bad"}) // only its record has such a key
	damageOpen(t, path, "value of the bad", "value of the BAD")
	if keys := s.ListKeys(); len(keys) != 1 || len(errs) != 1 || !errors.Is(errs[0], boltstore.ErrDamaged) {
		t.Errorf("keys are %v, errors %v", keys, errs)
	}
	must(0, db.Close())(t)
}

// TestMendKeepsTimes: undamaged entries keep the time at which they were stored.
func TestMendKeepsTimes(t *testing.T) {
	path, clk := newPath(t), fakeClock()
	db := open(t, path, boltstore.Options{ObjectMemory: -1, Clock: clk})
	c := claim(t, db)
	for _, name := range []string{"bad", "good"} {
		must(0, c.Add(&token{name, "value of the " + name}))(t)
	}
	clk.Step(time.Minute)
	must(0, c.Filled.Mend())(t) // it is whole
	damageOpen(t, path, "value of the bad", "value of the BAD")
	if _, _, err := c.GetByKey("bad"); !errors.Is(err, boltstore.ErrDamaged) {
		t.Error(err)
	}
	clk.Step(time.Minute)
	must(0, c.Filled.Mend())(t)
	if o, ok, err := c.Filled.GetStored("good"); !ok || err != nil || clk.Since(o.Time) != 2*time.Minute {
		t.Errorf("%+v %v %v", o, ok, err)
	}
	if keys := c.ListKeys(); len(keys) != 1 || c.Err() != nil {
		t.Error(keys, c.Err())
	}
	closeDB(t, db)
}

// damageOpen changes an open file, in which bytes of that length are found.
func damageOpen(t *testing.T, path, from, to string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for at := 0; ; at += len(from) {
		i := strings.Index(string(b[at:]), from)
		if i < 0 {
			break
		}
		at += i
		if _, err := f.WriteAt([]byte(to), int64(at)); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("not found")
	}
}
