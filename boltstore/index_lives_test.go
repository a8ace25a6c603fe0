package boltstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// indexLives takes random steps through lives that use other indices, in other versions.
// Some of their functions fail or panic for some objects, and their values are odd. After
// each step all reads of each index are those of client-go's indexer.
type indexLives struct {
	*testing.T
	rnd        *rand.Rand
	o          Options
	path       string
	db         *DB
	s          *Claimed
	p          *testProducer
	srv        server
	rv         int
	versions   map[string]string // of the indices in use
	versionsOf map[string]string // of all
	trace      []string
}

// oddValues are index values that are hard to keep.
var oddValues = []string{"", "\x00", "\x00\xff", "\x00\x00", "\xff\xff", "a", "a\x00", "a\x00b", "ä", "\xc3\x28",
	strings.Repeat("v", 512), strings.Repeat("v", 513),
	strings.Repeat("\x00", 512), strings.Repeat("w", 40_000), "../..", " ", "a/b", "\x01",
	"\x02" + strings.Repeat("x", 32)}

// ofIndex returns the values of an object in an index of a version, which depend on its
// content.
func ofIndex(name, version string) cache.IndexFunc {
	return func(o any) ([]string, error) {
		cm := o.(*corev1.ConfigMap)
		seed, _ := strconv.Atoi(cm.Data["seed"])
		n, _ := strconv.Atoi(version)
		rnd := rand.New(rand.NewPCG(uint64(seed/4), uint64(n)<<8|uint64(name[0])))
		switch k := rnd.IntN(12); {
		case k == 0:
			return nil, errRefused
		case k == 1:
			panic("odd " + cm.Name)
		case k == 2:
			return []string{}, nil
		case k == 3:
			var many []string
			for i := range 300 {
				many = append(many, fmt.Sprint(name, i,
					oddValues[i%len(oddValues)][:min(len(oddValues[i%len(oddValues)]), 3)]))
			}
			return many, nil
		}
		var values []string
		for range 1 + rnd.IntN(4) {
			values = append(values, oddValues[rnd.IntN(len(oddValues))])
		}
		return values, nil
	}
}

func (m *indexLives) say(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *indexLives) fail(format string, args ...any) {
	m.Helper()
	m.Fatalf("%s\nafter\n%s", fmt.Sprintf(format, args...), strings.Join(m.trace[max(0, len(m.trace)-40):], "\n"))
}

func (m *indexLives) open() {
	if m.rnd.IntN(4) == 0 {
		m.o.Keyset, m.o.decrypt = sealtest.Keyset(), m.rnd.IntN(2) == 0
	}
	m.o.ObjectMemory = []int64{-1, 20_000, 1 << 30}[m.rnd.IntN(3)]
	m.o.Compression = []Compression{CompressionNone, CompressionZstd}[m.rnd.IntN(2)]
	db, err := Open(m.path, m.o)
	must(m, err)
	m.db = db
	m.versions = map[string]string{}
	fns := cache.Indexers{}
	for _, name := range []string{"a", "b", "c"} {
		if m.rnd.IntN(3) > 0 {
			m.versions[name] = fmt.Sprint(1 + m.rnd.IntN(2))
			fns[name] = ofIndex(name, m.versions[name])
		}
	}
	all := maps.Clone(m.versions)
	for _, name := range []string{"a", "b", "c"} {
		if all[name] == "" {
			all[name] = fmt.Sprint(1 + m.rnd.IntN(2)) // of one that is added later
		}
	}
	m.say("open: indices %v of %v, memory %d", m.versions, all, m.o.ObjectMemory)
	s, err := db.Claim(Claim{Source: configMaps, Example: &corev1.ConfigMap{}, Indexers: fns, IndexVersions: all})
	must(m, err)
	m.s, m.p = s, &testProducer{}
	m.s.Feed.Attach(m.p)
	m.versionsOf = all
}

func (m *indexLives) step() {
	key := func() string { return fmt.Sprint("o", m.rnd.IntN(8)) }
	obj := func(name string) *corev1.ConfigMap {
		m.rv++
		return configMap("ns", name, m.rv, map[string]string{"seed": fmt.Sprint(m.rnd.IntN(60))})
	}
	switch n := m.rnd.IntN(100); {
	case n < 40:
		name := key()
		was := m.srv["ns/"+name]
		switch {
		case was == nil:
			o := obj(name)
			m.say("add %s %s", name, o.Data["seed"])
			m.srv.set(o)
			event(m.T, m.s, m.p, cache.Added, o, nil)
		case m.rnd.IntN(3) == 0:
			o := was.DeepCopy()
			m.rv++
			o.ResourceVersion = fmt.Sprint(m.rv)
			m.say("delete %s", name)
			delete(m.srv, "ns/"+name)
			event(m.T, m.s, m.p, cache.Deleted, o, nil)
		default:
			o := obj(name)
			m.say("update %s %s", name, o.Data["seed"])
			m.srv.set(o)
			event(m.T, m.s, m.p, cache.Updated, o, nil)
		}
	case n < 62:
		m.list()
	case n < 68:
		m.add()
	case n < 72:
		m.say("compact")
		_, err := m.db.Compact(m.Context(), nil)
		must(m, err)
	default:
		m.say("close")
		m.s.Release()
		must(m, m.db.Close())
		m.open()
	}
}

func (m *indexLives) add() {
	for _, name := range []string{"a", "b", "c"} {
		if m.versions[name] == "" {
			m.versions[name] = m.versionsOf[name]
			m.say("add index %s %s", name, m.versions[name])
			must(m, m.s.AddIndexers(cache.Indexers{name: ofIndex(name, m.versions[name])}))
			return
		}
	}
}

func (m *indexLives) list() {
	setMaxCommitBytes(m.db, []int{1, 4000, 4 << 20}[m.rnd.IntN(3)])
	o := RelistOptions{Content: m.rnd.IntN(3) == 0, NewTimeline: m.rnd.IntN(4) == 0,
		OnError: func(_ runtime.Object, err error) { m.Error(err) }}
	for range m.rnd.IntN(4) {
		name := fmt.Sprint("o", m.rnd.IntN(8))
		m.rv++
		if m.rnd.IntN(3) == 0 {
			delete(m.srv, "ns/"+name)
		} else {
			m.srv.set(configMap("ns", name, m.rv, map[string]string{"seed": fmt.Sprint(m.rnd.IntN(60))}))
		}
	}
	m.rv++
	r, err := m.s.Upstream.BeginRelist(o)
	must(m, err)
	raw := r.ByMetadata() && m.rnd.IntN(2) == 0
	m.say("list at %d: %+v raw %v", m.rv, o, raw)
	for page := range slices.Chunk(m.srv.list(), 3) {
		if raw {
			var want []runtime.Object
			for _, obj := range page {
				o := obj.(*corev1.ConfigMap)
				l := []listing.Object{{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID),
					ResourceVersion: o.ResourceVersion}}
				found, err := r.Compare(l)
				must(m, err)
				if found[0] == listing.MatchSame {
					must(m, r.Keep(l))
				} else {
					want = append(want, obj)
				}
			}
			page = want
		}
		must(m, r.Page(page))
		switch m.rnd.IntN(8) {
		case 0:
			m.add()
		case 1:
			m.say("in the list: compact")
			if _, err := m.db.Compact(m.Context(), nil); err != nil {
				m.fail("%v", err)
			}
		}
	}
	if m.rnd.IntN(5) == 0 {
		m.say("aborted")
		return
	}
	_, err = r.Commit(fmt.Sprint(m.rv), time.Now())
	must(m, err)
}

func (m *indexLives) check() {
	m.Helper()
	if m.rnd.IntN(2) == 0 {
		waitMemory(m.s)
	}
	if m.rnd.IntN(2) == 0 {
		for name := range m.versions {
			waitBuilt(m, m.s, name)
		}
		sameInMemory(m, m.s.source)
	}
	r, err := m.db.Check()
	if err != nil || !r.Sound() {
		m.fail("%+v %v", r, err)
	}
	fns := cache.Indexers{}
	for name, v := range m.versions {
		fn := ofIndex(name, v)
		fns[name] = func(o any) (values []string, err error) {
			if values, err = callIndexer(name, fn, o); err != nil {
				return nil, nil
			}
			return values, nil
		}
	}
	want := cache.NewIndexer(cache.MetaNamespaceKeyFunc, fns)
	for _, o := range m.s.List() {
		must(m, want.Add(o))
	}
	names := func(objs []any) (out []string) {
		for _, o := range objs {
			cm := o.(*corev1.ConfigMap)
			out = append(out, cm.Name+"@"+cm.ResourceVersion+" "+cm.Data["seed"])
		}
		slices.Sort(out)
		return out
	}
	for name := range fns {
		a, b := want.ListIndexFuncValues(name), m.s.ListIndexFuncValues(name)
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			m.fail("index %s: values %.300q, want %.300q", name, b, a)
		}
		for _, v := range append(a, oddValues...) {
			wantKeys, err := want.IndexKeys(name, v)
			must(m, err)
			keys, err := m.s.IndexKeys(name, v)
			must(m, err)
			slices.Sort(wantKeys)
			slices.Sort(keys)
			if !slices.Equal(keys, wantKeys) {
				m.fail("index %s %.40q: keys %v, want %v", name, v, keys, wantKeys)
			}
			wantObjs, _ := want.ByIndex(name, v)
			objs, err := m.s.ByIndex(name, v)
			must(m, err)
			if !slices.Equal(names(objs), names(wantObjs)) {
				m.fail("index %s %.40q: objects %v, want %v", name, v, names(objs), names(wantObjs))
			}
		}
		for _, o := range m.s.List() {
			wantObjs, _ := want.Index(name, o)
			if values, err := callIndexer(name, ofIndex(name, m.versions[name]), o); err != nil || len(values) == 0 {
				continue
			}
			objs, err := m.s.Index(name, o)
			must(m, err)
			if !slices.Equal(names(objs), names(wantObjs)) {
				m.fail("Index %s of %s: %v, want %v", name, o.(*corev1.ConfigMap).Name, names(objs), names(wantObjs))
			}
		}
	}
	v, err := m.db.View(configMaps)
	must(m, err)
	if a, b := names(v.List()), names(m.s.List()); !slices.Equal(a, b) {
		m.fail("a view has %v, want %v", a, b)
	}
}

// TestIndexLives: lives that use other indices, in other versions, read each as client-go's
// indexer would, whatever is written, listed, copied and added meanwhile. KUBEWAKE_MODEL says
// how many programs.
func TestIndexLives(t *testing.T) {
	n := 3
	if few() {
		n = 1
	}
	if s := os.Getenv("KUBEWAKE_MODEL"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	first := uint64(time.Now().UnixNano())
	if s := os.Getenv("KUBEWAKE_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
	}
	for i := range n {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &indexLives{T: t, rnd: rand.New(rand.NewPCG(seed, 0)), path: testPath(t), srv: server{}, rv: 100}
			m.o.Logger = new(logr.Discard())
			m.open()
			defer func() { m.s.Release(); must(t, m.db.Close()) }()
			relist(t, m.s, "100", RelistOptions{}, nil, 1)
			for range 50 {
				m.step()
				m.check()
			}
		})
	}
}
