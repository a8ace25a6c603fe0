package boltstore

import (
	"context"
	"fmt"
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

	"github.com/kubewake/kubewake/internal/sealtest"
)

// fillDurable makes a file with packed pods and durable handlers: one that is behind, with
// deletes, one that is to be told a Reset, and one whose keys are being added after one. It
// returns strings of the objects.
func fillDurable(t *testing.T, path string, o Options) needles {
	t.Helper()
	n := needles{}
	o.Compression, o.Window, o.JournalBytes, o.FlushInterval = CompressionZstd, time.Nanosecond, 1, time.Hour
	db, err := Open(path, o)
	must(t, err)
	objs := somePods(0, 120)
	s := claimTest(t, db, podClaim())
	relist(t, s, "1000", RelistOptions{}, objs, 60)
	p := &testProducer{}
	s.Feed.Attach(p)
	rv := 1000
	change := func(i int, typ cache.DeltaType) {
		rv++
		pod := objs[i].(*corev1.Pod).DeepCopy()
		pod.ResourceVersion = fmt.Sprint(rv)
		pod.Annotations["changed"] = fmt.Sprint("an annotation of the journal's ", rv)
		n.object(pod)
		n.add(pod.Spec.NodeName, pod.Spec.Containers[0].Image)
		c, err := s.Feed.Prepare(typ, pod)
		must(t, err)
		p.put(&Batch{Changes: []*Change{c}, ResourceVersion: pod.ResourceVersion})
		s.wake(true)
		p.wait(t)
	}
	behind, _ := claimHandler(t, s, "behind")
	handled(t, behind)
	for i := range 5 {
		change(i, cache.Updated)
	}
	change(3, cache.Deleted)
	change(4, cache.Deleted)
	s.Delivery.SetTold(1 << 40)
	for i := range 4 {
		change(5+i, cache.Updated)
	}
	change(8, cache.Deleted)
	change(8, cache.Added)
	s.Release()
	must(t, db.Close())

	o.JournalBytes = 0
	db, err = Open(path, o)
	must(t, err)
	s = claimTest(t, db, podClaim())
	p = &testProducer{}
	s.Feed.Attach(p)
	for i := range 4 {
		change(10+i, cache.Updated)
	}
	claimHandler(t, s, "reset")
	halfFilled(t, s)
	s.Release()
	must(t, db.Close())
	return n
}

// halfFilled leaves a handler that was told its Reset, and to which a part of the keys was
// added.
func halfFilled(t *testing.T, s *Claimed) {
	t.Helper()
	setFillKeys(s.db, 30)
	h, _ := claimHandler(t, s, "filling")
	r, _ := h.ResetOwed()
	s.db.commit.busy.Lock() // no commit fills the rest
	h.Acknowledge("", r)
	must(t, s.writeMarks())
	must(t, h.Release())
	s.db.commit.busy.Unlock()
	setFillKeys(s.db, fillKeys)
}

func setFillKeys(db *DB, n int) {
	db.commit.busy.Lock()
	defer db.commit.busy.Unlock()
	db.opts.fillKeys = n
}

// durable has a file's facts about a source's durable handlers.
type durable struct {
	objects  []any
	handlers map[string]handlerMeta
	pending  map[string]map[string]pendingKey
	journal  []string
}

func durableOf(t *testing.T, db *DB) durable {
	t.Helper()
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
	d := durable{handlers: map[string]handlerMeta{}, pending: map[string]map[string]pendingKey{}}
	s, err := db.View(pods)
	must(t, err)
	d.objects, err = s.ListErr()
	must(t, err)
	for _, e := range journalFrom(t, newClaimed(s), 1) {
		o, err := e.Object()
		must(t, err)
		d.journal = append(d.journal, fmt.Sprint(e.Seq, e.Type, e.Key, o.(*corev1.Pod).Annotations["changed"]))
	}
	must(t, db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, pods.ID())
		m, err := src.meta()
		if err != nil {
			return err
		}
		for name, hm := range m.Handlers {
			if err := src.verifyPending(name, hm); err != nil {
				return err
			}
			d.handlers[name] = hm
			d.pending[name] = map[string]pendingKey{}
			if _, err := digestPending(src.pending(name), func(pk *pendingKey, _ int) {
				d.pending[name][pk.Key] = *pk
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	return d
}

func (d durable) same(t *testing.T, what string, was durable) {
	t.Helper()
	sameObjects(t, what, was.objects, d.objects)
	if !reflect.DeepEqual(d.handlers, was.handlers) {
		t.Errorf("%s: handlers %+v, were %+v", what, d.handlers, was.handlers)
	}
	if !reflect.DeepEqual(d.pending, was.pending) {
		t.Errorf("%s: pending %v, was %v", what, d.pending, was.pending)
	}
	if !slices.Equal(d.journal, was.journal) {
		t.Errorf("%s: journal %q, was %q", what, d.journal, was.journal)
	}
}

// hidden fails if a file in dir has one of the strings.
func (n needles) hidden(t *testing.T, what, dir string) {
	t.Helper()
	for _, f := range filesIn(t, dir) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if found := n.found(b); len(found) > 0 {
			t.Errorf("%s, %s: found %q", what, filepath.Base(f), found)
		}
	}
}

// TestCopiesKeepPendingKeys: each kind of copy of a file keeps pending keys with their deletes
// and Resets. Keys go on to be added after a Reset where that was.
func TestCopiesKeepPendingKeys(t *testing.T) {
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
	if len(was.pending["behind"]) != 13 || !was.handlers["reset"].Owed || len(was.pending["filling"]) != 30 ||
		was.handlers["filling"].Fill == nil || len(was.journal) < 4 {
		t.Fatalf("the file has too little of it: %d pending, %+v, %d entries",
			len(was.pending["behind"]), was.handlers, len(was.journal))
	}
	hidden := func(what string) {
		t.Helper()
		n.hidden(t, what, filepath.Dir(path))
	}
	// The search finds strings that are there.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if found := n.found(b); len(found) == 0 {
		t.Fatal("the search does not find what is there", len(found))
	}

	db = open(Options{})
	if _, err := db.Compact(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	durableOf(t, db).same(t, "compacted", was)
	db = saved(t, db)
	durableOf(t, db).same(t, "salvaged", was)
	closeTest(t, db)
	for _, f := range filesIn(t, filepath.Dir(path)) {
		if f != path {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}

	db = open(Options{Keyset: ks})
	durableOf(t, db).same(t, "encrypted", was)
	hidden("encrypted")
	closeTest(t, db)

	// A Reset in the encrypted file, whose keys are being added.
	db = open(Options{Keyset: ks})
	s := claimTest(t, db, podClaim())
	must(t, s.Delivery.Remove("filling"))
	halfFilled(t, s)
	s.Release()
	if _, err := db.Compact(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	was = durableOf(t, db)
	if was.handlers["filling"].Fill == nil || len(was.pending["filling"]) != 30 {
		t.Fatalf("%d keys were added", len(was.pending["filling"]))
	}
	clk.Step(time.Hour)
	db = saved(t, db)
	durableOf(t, db).same(t, "salvaged", was)
	hidden("salvaged")
	db = rotated(t, db)
	durableOf(t, db).same(t, "rotated", was)
	hidden("rotated")
	if got := filesIn(t, filepath.Dir(path)); len(got) != 2 {
		t.Errorf("there are %q", got)
	}
	closeTest(t, db)

	db = open(Options{Keyset: ks, decrypt: true})
	durableOf(t, db).same(t, "decrypted", was)
	// The copy can be used: deletes are told, and the rest of the keys is added.
	s = claimTest(t, db, podClaim())
	h, _ := claimHandler(t, s, "behind")
	deletes := 0
	for _, is := range pendingOf(t, h) {
		for _, gone := range is.Deleted {
			o := gone.Object
			if last, unknown := o.(cache.DeletedFinalStateUnknown); unknown {
				o = last.Obj
			}
			if pod, _ := o.(*corev1.Pod); pod == nil || keyOfObject(pod) != is.Key {
				t.Errorf("%s: %v", is.Key, gone)
			}
			deletes++
		}
	}
	h, _ = claimHandler(t, s, "filling")
	tookReset(t, h)
	if n := len(keysOf(t, h)); n != 118 || deletes != 3 {
		t.Errorf("%d keys are pending after a Reset, and %d deletes are told", n, deletes)
	}
	s.Release()
}

// TestPlainFilesAside: files that were set aside before the encryption stay
// unencrypted, and the log names them.
func TestPlainFilesAside(t *testing.T) {
	path := testPath(t)
	fillCluster(t, path, Options{}, 20)
	db := openTest(t, path, Options{decrypt: true})
	db = saved(t, db)
	aside := db.beside.Aside()
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
		if got := warned(Options{Keyset: sealtest.Keyset()}); len(aside) != 1 || len(got) != 1 ||
			!strings.Contains(got[0], aside[0]) {
			t.Fatalf("%q, warned %q", aside, got)
		}
	}
	if err := os.Remove(aside[0]); err != nil {
		t.Fatal(err)
	}
	db = openTest(t, path, Options{Keyset: sealtest.Keyset()})
	db = saved(t, db)
	if all := db.beside.Aside(); len(all) != 1 {
		t.Fatal(all)
	}
	closeTest(t, db)
	if got := warned(Options{Keyset: sealtest.Keyset()}); len(got) != 0 {
		t.Fatalf("warned %q", got)
	}
}
