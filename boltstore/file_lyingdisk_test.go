package boltstore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// lyingDisk has the contents that a disk should have kept: the file after each commit,
// and the objects that the server had then.
type lyingDisk struct {
	files  [][]byte
	truth  map[int]map[string]*corev1.ConfigMap // by resourceVersion
	newest int
	keys   map[string]bool
}

var byColour = cache.Indexers{"colour": func(obj any) ([]string, error) {
	return []string{obj.(*corev1.ConfigMap).Data["colour"]}, nil
}}

func (d *lyingDisk) list() (objs []runtime.Object) {
	for _, o := range d.truth[d.newest] {
		objs = append(objs, o)
	}
	return objs
}

// step is the server's next change.
func (d *lyingDisk) step(rnd *rand.Rand) (typ cache.DeltaType, obj *corev1.ConfigMap) {
	next := map[string]*corev1.ConfigMap{}
	for k, o := range d.truth[d.newest] {
		next[k] = o
	}
	d.newest++
	name := fmt.Sprint("x", rnd.IntN(60))
	key := "a/" + name
	old := next[key]
	obj = configMap("a", name, d.newest,
		map[string]string{"colour": fmt.Sprint(rnd.IntN(4)),
			"text": string(bytes.Repeat([]byte(strconv.Itoa(d.newest)), rnd.IntN(300)))})
	switch {
	case old == nil:
		typ = cache.Added
		next[key] = obj
	case rnd.IntN(4) == 0:
		typ = cache.Deleted
		obj = old.DeepCopy()
		obj.ResourceVersion = fmt.Sprint(d.newest)
		delete(next, key)
	default:
		typ = cache.Updated
		next[key] = obj
	}
	d.keys[key] = true
	d.truth[d.newest] = next
	return typ, obj
}

func newLyingDisk(t *testing.T, o Options, rnd *rand.Rand) *lyingDisk {
	t.Helper()
	d := &lyingDisk{truth: map[int]map[string]*corev1.ConfigMap{10: {}}, newest: 10, keys: map[string]bool{}}
	for range 80 {
		d.step(rnd)
	}
	path := testPath(t)
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{Indexers: byColour})
	keep := func() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d.files = append(d.files, b)
	}
	relist(t, s, fmt.Sprint(d.newest), RelistOptions{}, d.list(), 100)
	another := func(tx *bolt.Tx) error {
		var h header
		f := tx.Bucket(layout.BucketFile)
		if err := format.Get(f, layout.KeyHeader, &h); err != nil {
			return err
		}
		synced := h.SyncedCommits
		ofUncleanBoot(&h)
		h.SyncedCommits = synced
		return format.Put(f, layout.KeyHeader, h)
	}
	if err := db.h.update(another, nil); err != nil {
		t.Fatal(err)
	}
	keep()
	p := &testProducer{}
	s.Feed.Attach(p)
	for range 40 {
		typ, obj := d.step(rnd)
		event(t, s, p, typ, obj, nil)
		keep()
	}
	closeTest(t, db)
	return d
}

// lose returns the disk's contents after a power cut: some of the writes that it has
// acknowledged since an earlier commit are missing.
func (d *lyingDisk) lose(rnd *rand.Rand) []byte {
	last := 1 + rnd.IntN(len(d.files)-1)
	since := max(rnd.IntN(last+1), last-1-rnd.IntN(8))
	sector := []int{512, 4096}[rnd.IntN(2)]
	kept := rnd.IntN(101) // per cent
	now := bytes.Clone(d.files[last])
	older := func(at int) []byte { // the sector as it was at some commit
		f := d.files[since+rnd.IntN(last-since+1)]
		if at+sector > len(f) {
			return make([]byte, sector)
		}
		return f[at : at+sector]
	}
	for at := 0; at+sector <= len(now); at += sector {
		if rnd.IntN(100) >= kept {
			copy(now[at:], older(at))
		}
	}
	if rnd.IntN(4) == 0 { // the file's length, too, where it has grown
		now = now[:min(len(now), len(d.files[rnd.IntN(last+1)]))]
	}
	return now
}

// TestLyingDisk: a disk acknowledges writes that it does not keep, and loses any of them
// when the power fails. The rest can be opened, or is set aside. No object is served that
// was never committed. A source that is not marked as degraded has exactly the objects of
// its resourceVersion, so it may go on from there. After a list everything equals the
// server.
//
// KUBEWAKE_LIES says how many times for each kind of file, 60 by default.
func TestLyingDisk(t *testing.T) {
	rounds := 60
	if few() {
		rounds = 20
	}
	if s := os.Getenv("KUBEWAKE_LIES"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, o := range map[string]Options{
		"plain":     {Window: time.Nanosecond},
		"packed":    {Window: time.Nanosecond, Compression: CompressionZstd},
		"encrypted": {Window: time.Nanosecond, Keyset: sealtest.Keyset()},
		"in memory": {Window: time.Nanosecond, ObjectMemory: 64 << 20},
		"no syncs":  {Durability: DurabilityProcess, Window: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			if s := os.Getenv("KUBEWAKE_SEED"); s != "" {
				var err error
				if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
					t.Fatal(err)
				}
			}
			rnd := rand.New(rand.NewPCG(seed, 0))
			d := newLyingDisk(t, o, rnd)
			seen := map[string]int{}
			defer func() { t.Logf("seed %d: %v", seed, seen) }()
			last := len(d.files) - 1
			if was, served := d.round(t, o, d.files[last]); was != whole || served != len(d.truth[d.newest]) {
				t.Errorf("a disk that has lost nothing is %s, and %d objects of %d are served", was, served,
					len(d.truth[d.newest]))
			}
			for range rounds {
				was, _ := d.round(t, o, d.lose(rnd)) // how many are left depends on what was lost
				if seen[was]++; t.Failed() {
					return
				}
			}
		})
	}
}

const whole = "whole"

// round opens a disk's contents, and says what became of them and how many objects are
// served.
func (d *lyingDisk) round(t *testing.T, o Options, content []byte) (was string, served int) {
	t.Helper()
	path := testPath(t)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if o.ObjectMemory == 0 {
		o.ObjectMemory = -1
	}
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := db.Check()
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{Indexers: byColour})
	for key := range d.keys {
		obj, ok, err := s.GetByKey(key)
		if err == nil && ok {
			d.committed(t, key, obj)
		}
	}
	for colour := range 4 {
		// fails where damage has taken objects; the others must be right
		objs, _ := s.ByIndex("colour", fmt.Sprint(colour))
		for _, obj := range objs {
			d.committed(t, "", obj)
		}
	}
	objs, lerr := s.ListErr()
	for _, obj := range objs {
		d.committed(t, "", obj)
	}
	st := s.State()
	was = whole
	switch {
	case len(db.Aside()) > 0:
		was = "set aside"
	case st.Degraded != "" || lerr != nil:
		was = "degraded"
	}
	if st.Degraded == "" && st.Synced && lerr == nil {
		rv, _ := strconv.Atoi(st.ResourceVersion) // no number is 0, of which there is no truth
		if want := d.truth[rv]; want == nil || len(want) != len(objs) {
			t.Errorf("%s: %d objects of version %s, which had %d", was, len(objs), st.ResourceVersion, len(want))
		}
		for _, obj := range objs {
			cm := obj.(*corev1.ConfigMap)
			if !reflect.DeepEqual(cm, d.truth[rv]["a/"+cm.Name]) {
				t.Errorf("%s: version %s: %s is of version %s", was, st.ResourceVersion, cm.Name, cm.ResourceVersion)
			}
		}
	}
	relist(t, s, fmt.Sprint(d.newest), RelistOptions{}, d.list(), 100)
	serves(t, s, d.list())
	r, err := db.Check()
	if err != nil {
		t.Error(err)
	}
	for _, sr := range r.Sources {
		if len(sr.Problems) > 0 && sr.Source == configMaps {
			t.Errorf("%s: after a list: %v; as opened: %+v", was, sr.Problems, opened)
		}
	}
	for _, p := range r.Problems {
		if !strings.Contains(p, pages.Lost) { // the disk has lost the list of free pages
			t.Errorf("%s: after a list: %s", was, p)
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	return was, len(objs)
}

// committed fails unless the object was committed at that key, at any time.
func (d *lyingDisk) committed(t *testing.T, key string, obj any) {
	t.Helper()
	cm := obj.(*corev1.ConfigMap)
	if key == "" {
		key = cm.Namespace + "/" + cm.Name
	}
	rv, _ := strconv.Atoi(cm.ResourceVersion) // no number is 0, of which there is no truth
	if !reflect.DeepEqual(cm, d.truth[rv][key]) {
		t.Errorf("%s of version %s is served, which was never committed so", key, cm.ResourceVersion)
	}
}
