package boltstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// fillDurable makes a file with packed pods, two dictionaries and durable handlers: one
// with parked entries, one with pending keys, one in the middle of a replay. It returns
// strings of the objects.
func fillDurable(t testing.TB, path string, o Options) needles {
	t.Helper()
	n := needles{map[string]bool{}, map[string]bool{}}
	o.Compression, o.Window, o.JournalBytes = CompressionZstd, time.Nanosecond, 1
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	objs := somePods(0, 120)
	s := claimTest(t, db, podClaim())
	relist(t.(*testing.T), s, "1000", RelistOptions{}, objs, 60)
	p := &testProducer{}
	s.Attach(p)
	rv := 1000
	change := func(i int, typ cache.DeltaType) {
		rv++
		pod := objs[i].(*corev1.Pod).DeepCopy()
		pod.ResourceVersion = fmt.Sprint(rv)
		pod.Annotations["changed"] = fmt.Sprint("an annotation of the journal's ", rv)
		n.object(pod)
		n.add(n.rest, pod.Spec.NodeName, pod.Spec.Containers[0].Image)
		c, err := s.Prepare(typ, pod)
		if err != nil {
			t.Fatal(err)
		}
		p.put(&Batch{Changes: []*Change{c}, ResourceVersion: pod.ResourceVersion})
		s.wake(true)
		p.wait(t.(*testing.T))
	}
	claimHandler(t.(*testing.T), s, "behind")
	for i := range 5 {
		change(i, cache.Updated)
		change(i, cache.Updated)
	}
	change(4, cache.Deleted)
	s.SetTold(1 << 40)
	for range 8 {
		change(5, cache.Updated)
	}
	retrain(t, s)
	change(6, cache.Updated) // packed by the other dictionary
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	o.JournalBytes = 0
	if db, err = Open(path, o); err != nil {
		t.Fatal(err)
	}
	s = claimTest(t, db, podClaim())
	p = &testProducer{}
	s.Attach(p)
	pending, at := claimHandler(t.(*testing.T), s, "pending")
	for i := range 4 {
		change(10+i, cache.Updated)
	}
	seq := s.State().Seq
	keyOf := func(i int) string { k, _ := cache.MetaNamespaceKeyFunc(objs[i]); return k }
	at.set(func(p *Position) {
		p.Replaying, p.Next = false, nil
		p.Cursor, p.Pending = seq-1, map[string]uint64{keyOf(10): seq - 3, keyOf(12): seq - 1}
	})
	pending.Changed()
	shown, at := claimHandler(t.(*testing.T), s, "replaying")
	page, err := s.Replay(nil, 30)
	if err != nil || len(page.Entries) != 30 {
		t.Fatal(len(page.Entries), err)
	}
	at.set(func(p *Position) {
		p.Next = page.Next
		p.Shown = []string{page.Entries[7].Key, page.Entries[9].Key}
	})
	shown.Changed()
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// durable has a file's facts about a source's durable handlers.
type durable struct {
	objects  []any
	handlers map[string]handlerState
	parked   map[string]map[string]parked
	dicts    map[uint32][]byte
	next     uint32 // version of the next dictionary
	journal  []string
	places   map[string]bool // handlers whose replay goes on where it was
}

func durableOf(t *testing.T, db *DB) durable {
	t.Helper()
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
	d := durable{handlers: map[string]handlerState{}, parked: map[string]map[string]parked{}, dicts: map[uint32][]byte{}, places: map[string]bool{}}
	s, err := db.View(pods)
	if err != nil {
		t.Fatal(err)
	}
	if d.objects, err = s.ListErr(); err != nil {
		t.Fatal(err)
	}
	for _, e := range journalFrom(t, &Claimed{s}, 1) {
		o, err := e.Object()
		if err != nil {
			t.Fatal(err)
		}
		prev, err := e.Previous()
		if err != nil {
			t.Fatal(err)
		}
		d.journal = append(d.journal, fmt.Sprint(e.Seq, e.Type, e.Key, o.(*corev1.Pod).Annotations["changed"], prev.(*corev1.Pod).ResourceVersion))
	}
	err = db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, pods.ID())
		m, err := src.meta()
		if err != nil {
			return err
		}
		all, err := src.handlers(m)
		for name, st := range all {
			place, err := s.placeKept(st.Next)
			d.places[name] = place != nil
			if err != nil {
				return err
			}
			st.Next = nil
			d.handlers[name] = *st
			d.parked[name] = map[string]parked{}
			err = src.parked(name).Each(func(_, v []byte) {
				p, err := parseParked(v)
				if err != nil {
					t.Error(err)
					return
				}
				d.parked[name][p.Key] = *p
			})
			if err != nil {
				return err
			}
		}
		d.dicts = s.packs.Dicts()
		d.next, _ = src.nextDict(s.metaNow())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d durable) same(t *testing.T, what string, was durable, places bool) {
	t.Helper()
	sameObjects(t, what, was.objects, d.objects)
	for name, st := range was.handlers {
		if !reflect.DeepEqual(d.handlers[name], st) {
			t.Errorf("%s: handler %s: %+v, was %+v", what, name, d.handlers[name], st)
		}
	}
	if !reflect.DeepEqual(d.parked, was.parked) {
		t.Errorf("%s: parked %v, was %v", what, d.parked, was.parked)
	}
	if !reflect.DeepEqual(d.dicts, was.dicts) || d.next != was.next {
		t.Errorf("%s: dictionaries %v, next %d, were %v, next %d", what, slices.Collect(maps.Keys(d.dicts)), d.next, slices.Collect(maps.Keys(was.dicts)), was.next)
	}
	if !slices.Equal(d.journal, was.journal) {
		t.Errorf("%s: journal %q, was %q", what, d.journal, was.journal)
	}
	if d.places["replaying"] != places {
		t.Errorf("%s: the replay goes on where it was: %v", what, d.places["replaying"])
	}
}

// hidden fails if a file in dir has one of the strings, or a piece of a dictionary.
func (n needles) hidden(t *testing.T, what, dir string, dicts map[uint32][]byte) {
	t.Helper()
	for _, f := range filesIn(t, dir) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if names, rest := n.found(b); len(names)+len(rest) > 0 {
			t.Errorf("%s, %s: found %q %q", what, filepath.Base(f), names, rest)
		}
		for v, d := range dicts {
			for at := len(d) / 2; at+24 <= len(d); at += len(d) / 40 {
				if strings.Contains(string(b), string(d[at:at+24])) {
					t.Fatalf("%s, %s: found a piece of dictionary %d", what, filepath.Base(f), v)
				}
			}
		}
	}
}

// TestCopiesKeepPositions: each kind of copy of a file keeps positions, parked and pending
// keys, and dictionaries. A replay continues, except in a file with other data keys,
// whose order differs: there it begins again.
func TestCopiesKeepPositions(t *testing.T) {
	path := testPath(t)
	plainFile := Options{decrypt: true}
	n := fillDurable(t, path, Options{})
	clk := testingclock.NewFakeClock(time.Now())
	ks := sealtest.Keyset()
	open := func(o Options) *DB {
		o.Clock = clk
		return openTest(t, path, o)
	}
	db := open(plainFile)
	was := durableOf(t, db)
	closeTest(t, db)
	if len(was.parked["behind"]) < 6 || len(was.handlers["pending"].Pending) != 2 || !was.places["replaying"] || len(was.dicts) != 2 || len(was.journal) < 5 {
		t.Fatalf("the file has too little of it: %d parked, %+v, %d dictionaries, %d entries", len(was.parked["behind"]), was.handlers, len(was.dicts), len(was.journal))
	}
	hidden := func(what string) {
		t.Helper()
		n.hidden(t, what, filepath.Dir(path), was.dicts)
	}
	// The search finds strings that are there.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if names, rest := n.found(b); len(names) == 0 || len(rest) == 0 || !strings.Contains(string(b), string(was.dicts[format.PackedByDict][500:524])) {
		t.Fatal("the search does not find what is there", len(names), len(rest))
	}

	db = open(Options{})
	if _, err := db.Compact(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	durableOf(t, db).same(t, "compacted", was, true)
	db.healing().heal(errors.New("said the test"), db.h.now.Load())
	durableOf(t, db).same(t, "healed", was, true)
	closeTest(t, db)
	for _, f := range filesIn(t, filepath.Dir(path)) {
		if f != path {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}

	db = open(Options{Keyset: ks})
	durableOf(t, db).same(t, "encrypted", was, false)
	hidden("encrypted")
	closeTest(t, db)

	// A replay that was begun in the encrypted file.
	db = open(Options{Keyset: ks})
	s := claimTest(t, db, podClaim())
	p, err := s.Replay(nil, 30)
	if err != nil {
		t.Fatal(err)
	}
	rep, at := claimHandler(t, s, "replaying")
	at.set(func(pos *Position) { pos.Next = p.Next })
	rep.Changed()
	s.Release()
	if _, err := db.Compact(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	was = durableOf(t, db)
	was.same(t, "begun", was, true)
	clk.Step(time.Hour)
	db.healing().heal(errors.New("said the test"), db.h.now.Load())
	durableOf(t, db).same(t, "healed", was, true)
	hidden("healed")
	closeTest(t, db)
	// Damaged while no process has it open: the file is set aside, and its content
	// saved.
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if db, err = newDB(path, Options{Keyset: ks, Clock: clk}.withDefaults()); err != nil {
		t.Fatal(err)
	}
	db.judged.file = st
	if err := errors.Join(db.converting().readKeyset(), db.healing().replace(fmt.Errorf("%w: said the test", ErrDamaged))); err != nil {
		t.Fatal(err)
	}
	db = open(Options{Keyset: ks})
	durableOf(t, db).same(t, "replaced", was, true)
	hidden("replaced")
	db = rotated(t, db)
	durableOf(t, db).same(t, "rotated", was, false)
	hidden("rotated")
	if got := filesIn(t, filepath.Dir(path)); len(got) != 3 {
		t.Errorf("there are %q", got)
	}
	closeTest(t, db)

	db = open(Options{Keyset: ks, decrypt: true})
	durableOf(t, db).same(t, "decrypted", was, false)
	// The copy can be used: parked entries are handed out, the rest is replayed.
	s = claimTest(t, db, podClaim())
	h, pos := claimHandler(t, s, "behind")
	page, err := h.Parked(nil, 100, 0)
	if err != nil || len(page.Keys) != len(was.parked["behind"]) || pos.p.Cursor != was.handlers["behind"].Cursor {
		t.Fatalf("%d parked, %v, at %d", len(page.Keys), err, pos.p.Cursor)
	}
	for i, key := range page.Keys {
		for _, e := range page.Entries[i] {
			o, err := e.Object()
			if err != nil || o.(*corev1.Pod).Namespace+"/"+o.(*corev1.Pod).Name != key {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	s.Release()
}

// TestPlainFilesAside: files that were set aside before the encryption stay
// unencrypted, and the log names them.
func TestPlainFilesAside(t *testing.T) {
	path := testPath(t)
	fillCluster(t, path, Options{}, 20)
	db := openTest(t, path, Options{decrypt: true})
	db.healing().heal(errors.New("said the test"), db.h.now.Load())
	aside := db.AsidePaths()
	closeTest(t, db)
	warned := func(o Options) (got []string) {
		l := klog.Logger(funcr.New(func(_, args string) {
			if strings.Contains(args, "not encrypted") {
				got = append(got, args)
			}
		}, funcr.Options{}))
		o.Logger = &l
		closeTest(t, openTest(t, path, o))
		return got
	}
	for range 2 {
		if got := warned(Options{Keyset: sealtest.Keyset()}); len(aside) != 1 || len(got) != 1 || !strings.Contains(got[0], aside[0]) {
			t.Fatalf("%q, warned %q", aside, got)
		}
	}
	if err := os.Remove(aside[0]); err != nil {
		t.Fatal(err)
	}
	db = openTest(t, path, Options{Keyset: sealtest.Keyset()})
	db.healing().heal(errors.New("said the test"), db.h.now.Load())
	if len(db.AsidePaths()) != 1 {
		t.Fatal(db.AsidePaths())
	}
	closeTest(t, db)
	if got := warned(Options{Keyset: sealtest.Keyset()}); len(got) != 0 {
		t.Fatalf("warned %q", got)
	}
}
