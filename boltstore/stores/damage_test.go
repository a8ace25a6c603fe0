package stores_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

// TestDamagedEntry: an entry that damage has taken counts as expired, and can be stored
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
		must(0, os.WriteFile(path, bytes.ReplaceAll(b, []byte("value of the bad"), []byte("value of the BAD")), 0o600))(t)
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
