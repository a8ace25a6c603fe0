package apifile

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/kubeapi"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// state is what the server has at a version.
type state struct {
	version int
	objects map[string]*corev1.ConfigMap
}

// program is a random program on a file, beside a model.
type program struct {
	*testing.T
	rnd     *rand.Rand
	path    string
	options boltstore.Options
	db      *boltstore.DB
	s       *boltstore.Claimed
	q       *fifo.Queue
	now     state
	past    []state // of this series
	whole   bool    // the file has been listed
	watches []*watching
	counts  map[string]int
	log     []string
}

// watching is a client with a cache.
type watching struct {
	sel   kubeapi.Selection
	cache map[string]string
	last  int // the version that the client would go on from
	w     kubeapi.Watch
	stale bool // the server was restored
}

// rendered is the compared part of an object.
func rendered(version any, of map[string]string) string {
	if len(of) == 0 {
		of = nil
	}
	return fmt.Sprintf("%v %v", version, of)
}

// TestPrograms runs random programs of changes, lists, restores, other clusters, new
// lives and compactions. Lists, and lists of exact versions, each show one former
// state. Clients that watch, break off and go on from the last
// version they have seen end equal. KUBEWAKE_PROGRAMS says how many programs.
func TestPrograms(t *testing.T) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("KUBEWAKE_PROGRAMS"), "12"))
	if err != nil {
		t.Fatal(err)
	}
	total := map[string]int{}
	for seed := range n {
		p := &program{T: t, rnd: rand.New(rand.NewPCG(uint64(seed), 7)), path: filepath.Join(t.TempDir(), "p.db"),
			counts: total}
		if seed%3 == 0 {
			p.options.Keyset = sealtest.Keyset()
		}
		if seed%2 == 0 {
			p.options.JournalBytes = 4000
		}
		p.now.objects = map[string]*corev1.ConfigMap{}
		p.now.version = 100
		p.open()
		for step := range 250 {
			p.step()
			if t.Failed() {
				t.Fatalf("seed %d, step %d:\n%s", seed, step, strings.Join(p.log[max(0, len(p.log)-40):], "\n"))
			}
		}
		p.close()
	}
	t.Log(total)
}

// did notes the steps, for the log of a failure.
func (p *program) did(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
	p.counts[strings.Fields(format)[0]]++
}

func (p *program) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatalf("%v\n%s", err, strings.Join(p.log[max(0, len(p.log)-40):], "\n"))
	}
}

func (p *program) open() {
	var err error
	p.db, err = boltstore.Open(p.path, p.options)
	p.must(err)
	p.s, err = p.db.Claim(boltstore.Claim{Source: source1("configmaps", "", ""), Example: &corev1.ConfigMap{}})
	p.must(err)
	p.q = fifo.New(p.s, nil)
	go func(q *fifo.Queue) {
		for {
			if _, err := q.Pop(func(any, bool) error { return nil }); err != nil {
				return
			}
		}
	}(p.q)
}

func (p *program) close() {
	for _, w := range p.watches {
		w.w = nil
	}
	p.q.Close()
	p.s.Release()
	p.must(p.db.Close())
}

func (p *program) object(key string) *corev1.ConfigMap {
	ns, name, _ := strings.Cut(key, "/")
	o := configMap(ns, name, p.now.version)
	for _, l := range []string{"app", "tier"} {
		if p.rnd.IntN(2) == 0 {
			o.Labels = labels.Merge(o.Labels, labels.Set{l: []string{"p", "q"}[p.rnd.IntN(2)]})
		}
	}
	if p.rnd.IntN(6) == 0 {
		o.Data["fill"] = strings.Repeat("x", 2000)
	}
	return o
}

func (p *program) key() string {
	return []string{"a", "ab", "b"}[p.rnd.IntN(3)] + "/" + []string{"x", "y", "x.y", "x-1", "z", "zz"}[p.rnd.IntN(6)]
}

// became notes the present state.
func (p *program) became() {
	p.past = append(p.past, state{p.now.version, maps.Clone(p.now.objects)})
}

func (p *program) change() {
	p.now.version += 1 + p.rnd.IntN(3)
	key := p.key()
	old := p.now.objects[key]
	if old != nil && p.rnd.IntN(3) == 0 {
		gone := old.DeepCopy()
		gone.ResourceVersion = fmt.Sprint(p.now.version)
		p.must(p.q.Delete(gone))
		delete(p.now.objects, key)
		p.did("delete %s at %d", key, p.now.version)
	} else {
		o := p.object(key)
		if old != nil {
			o.UID = old.UID
		} else {
			o.UID = types.UID(fmt.Sprint("u", p.rnd.Int()))
		}
		p.now.objects[key] = o
		p.must(p.q.Update(o.DeepCopy()))
		p.did("update %s at %d %v", key, p.now.version, o.Labels)
	}
}

func (p *program) list(restored bool) {
	var objs []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(p.now.objects)) {
		objs = append(objs, p.now.objects[key].DeepCopy())
	}
	r, err := p.q.BeginRelist(p.Context(), boltstore.RelistOptions{NewTimeline: restored})
	p.must(err)
	p.must(r.Page(objs))
	v := fmt.Sprint(p.now.version)
	p.must(r.Commit(p.Context(), v, v, v))
	p.must(p.q.Flush(p.Context()))
	p.did("list at %d: %d", p.now.version, len(objs))
	p.whole = true
	p.became()
}

func (p *program) step() {
	r := p.rnd.IntN(100)
	switch {
	case !p.whole && r < 50, r < 4:
		for range p.rnd.IntN(5) { // changes that only the list shows
			p.now.version += 1 + p.rnd.IntN(2)
			if key := p.key(); p.rnd.IntN(3) == 0 {
				delete(p.now.objects, key)
			} else {
				o := p.object(key)
				if old := p.now.objects[key]; old != nil && p.rnd.IntN(4) > 0 {
					o.UID = old.UID
				} else {
					o.UID = types.UID(fmt.Sprint("u", p.rnd.Int()))
				}
				p.now.objects[key] = o
			}
		}
		p.list(false)
	case r < 40:
		if !p.whole {
			return
		}
		for range 1 + p.rnd.IntN(4) {
			p.change()
			if p.rnd.IntN(3) == 0 {
				p.must(p.q.Flush(p.Context()))
			}
			p.became()
		}
		p.must(p.q.Flush(p.Context()))
	case r < 42:
		if p.whole {
			p.now.version += 5
			p.must(p.q.Bookmark(fmt.Sprint(p.now.version)))
			p.must(p.q.Flush(p.Context()))
			p.did("bookmark %d", p.now.version)
			p.became()
		}
	case r < 46 && p.whole:
		p.did("setaside")
		p.must(p.s.Upstream.Empty())
		p.whole = false
		p.past = nil
	case r < 48 && p.whole: // restored
		if len(p.past) < 3 {
			return
		}
		was := p.past[p.rnd.IntN(len(p.past)-1)]
		p.did("restore to %d", was.version)
		p.now.version, p.now.objects = was.version, maps.Clone(was.objects)
		p.past = nil
		for _, w := range p.watches {
			w.stale = true
		}
		p.list(true)
	case r < 50:
		p.did("reopen")
		p.close()
		if p.rnd.IntN(2) == 0 {
			p.did("compact")
			_, err := boltstore.Compact(p.Context(), p.path, p.options, nil)
			p.must(err)
		}
		p.open()
	case r < 65:
		p.exact()
	case r < 80:
		p.begin()
	default:
		p.follow()
	}
	if p.whole {
		p.present()
	}
}
