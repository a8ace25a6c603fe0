package informer

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/reflector"
)

// gapped is an informer that does not run, with one plain handler, and a file
// that was damaged: of three deletes above the told mark the second is lost.
type gapped struct {
	t   *testing.T
	db  *boltstore.DB
	inf *Informer
	l   *listener
	r   *recorder
}

func openGapped(t *testing.T, path string) *gapped {
	t.Helper()
	db, err := boltstore.Open(path,
		boltstore.Options{Durability: boltstore.DurabilityProcess, Window: 1, FlushInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	inf, err := NewSharedIndexInformer(db, &cache.ListWatch{}, &corev1.ConfigMap{},
		Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
			Form: boltstore.FormTyped}}})
	if err != nil {
		t.Fatal(err)
	}
	return &gapped{t: t, db: db, inf: inf}
}

func (g *gapped) end() {
	g.t.Helper()
	g.inf.store.Release()
	if err := g.db.Close(); err != nil {
		g.t.Fatal(err)
	}
}

func newGapped(t *testing.T, lost bool) (g *gapped, last uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wake.db")
	g = openGapped(t, path)
	q := fifo.New(g.inf.store, nil)
	rv := 0
	change := func(do func(any) error, name string) {
		t.Helper()
		rv++
		o := cm(name)
		o.UID, o.ResourceVersion = types.UID(name), fmt.Sprint(rv)
		if err := errors.Join(do(o), q.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"old0", "old1", "old2", "stays"} {
		change(q.Add, name)
	}
	told := g.inf.store.State().Seq
	g.inf.store.Delivery.SetTold(told)
	for i := range 3 {
		change(q.Delete, fmt.Sprint("old", i))
	}
	q.Close()
	g.end()
	inSource(t, path, func(src *bolt.Bucket) error {
		j, k := src.Bucket([]byte("journal")), []byte{0, 0, 0, 0, 0, 0, 0, byte(told + 2)}
		if lost {
			return j.Delete(k)
		}
		b := slices.Clone(j.Get(k))
		b[len(b)-1] ^= 1
		return j.Put(k, b)
	})
	g = openGapped(t, path)
	g.r = newRecorder(t)
	if _, err := g.inf.AddEventHandler(g.r); err != nil {
		t.Fatal(err)
	}
	for l := range g.inf.listeners {
		g.l = l
	}
	g.l.gone, g.l.replay = t.Context(), walk{}
	return g, told + 3
}

// TestGapIsReplayed: if the journal has lost entries that a handler has still to be told,
// the handler is told the later entries, and all objects again.
func TestGapIsReplayed(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			g, last := newGapped(t, lost)
			l, r := g.l, g.r
			for l.cursor.Load() < last && l.entries(last) {
			}
			if !l.replaying() || l.page(&l.replay, func(obj any) { r.OnAdd(obj, true) }) && l.replaying() {
				t.Error("no replay")
			}
			r.expect("delete old0", "delete old2", "initial stays")
			g.end()
		})
	}
}

// TestGapWithinAPage: a page that was read before a gap was found is not the first one
// told after it.
func TestGapWithinAPage(t *testing.T) {
	g, _ := newGapped(t, false)
	l := g.l
	l.replay = walk{active: true, begun: true, next: nil, epoch: g.inf.store.Upstream.Epoch()}
	for range 3 {
		l.page(&l.replay, func(any) { t.Error("told") })
		if !l.replay.begun {
			break
		}
	}
	if l.replay.begun || !l.replay.active {
		t.Errorf("%+v", l.replay)
	}
	g.end()
}

// TestTrimmedIsNoGap: entries that were trimmed after all handlers had been told are not
// a gap for a handler that comes later.
func TestTrimmedIsNoGap(t *testing.T) {
	g, last := newGapped(t, true)
	l, r := g.l, g.r
	l.owed = last
	for l.cursor.Load() < last && l.entries(last) {
	}
	if l.replaying() {
		t.Error("replayed again")
	}
	r.expect("delete old0", "delete old2")
	g.end()
}
