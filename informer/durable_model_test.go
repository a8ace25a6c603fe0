package informer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/internal/durable"
)

// believer is a durable handler of random answers that checks what it is told
// against what it has acknowledged.
type believer struct {
	t   *testing.T
	mu  sync.Mutex
	rnd *rand.Rand
	// good: it acknowledges everything.
	good  bool
	there map[string]*corev1.ConfigMap
	uids  map[types.UID]cache.DeltaType // the type of the change it was last told, for each object
	acked map[string]uint64             // in this life, or durably
	last  map[string]uint64             // seq last told
	later []Event
	turns map[string]durable.Turn
	open  map[string]map[*durable.Delivery]bool // of events for later, by key
	told  int
	form  string // of the transform, "" without one
}

// set sets the form that all objects must have from now on.
func (b *believer) set(form string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.form = form
}

// shape is the model's transform. Each form hides the other forms, and without hides the
// rest.
func shape(o *corev1.ConfigMap, form string) {
	switch o.Data["form"] = form; form {
	case "":
		delete(o.Data, "form")
	case without:
		delete(o.Data, "data")
	}
}

const without = "0"

func (b *believer) fault(format string, args ...any) { b.t.Errorf(format, args...) }

func (b *believer) handle(e Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told++
	obj := e.Object
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	o, ok := obj.(*corev1.ConfigMap)
	if !ok {
		b.fault("%s %s with a %T", e.Type, e.Key, e.Object)
		return nil
	}
	if turn := e.delivery.Inspect().Turn; b.turns[e.Key] != turn {
		delete(b.open, e.Key) // told again: answers to earlier tellings do not count
		b.turns[e.Key] = turn
	}
	if e.Seq < b.acked[e.Key] {
		b.fault("%s %s of %d told when %d was acknowledged", e.Type, e.Key, e.Seq, b.acked[e.Key])
	}
	for what, o := range map[string]any{"object": o, "old object": e.Old()} {
		if o, ok := o.(*corev1.ConfigMap); ok && o.Data["form"] != b.form {
			b.fault("%s %s of %d: the %s has form %q, not %q", e.Type, e.Key, e.Seq, what, o.Data["form"], b.form)
		}
	}
	if _, whole := o.Data["data"]; e.Type != cache.Deleted && whole == (b.form == without) {
		b.fault("%s %s of %d in form %q with %v", e.Type, e.Key, e.Seq, b.form, o.Data)
	}
	b.uids[o.UID] = e.Type
	defer func() { b.last[e.Key] = e.Seq }()
	switch old := b.there[e.Key]; e.Type {
	case cache.Deleted:
		delete(b.there, e.Key)
	default:
		if old != nil && old.UID != o.UID && e.Seq >= b.last[e.Key] { // or it is told again what came before
			b.fault("%s %s comes with another UID and no delete between", e.Type, e.Key)
		}
		if e.Type == cache.Updated && old == nil && e.Seq > b.last[e.Key] {
			b.fault("update of %s, which is gone", e.Key)
		}
		if prev, ok := e.Old().(*corev1.ConfigMap); ok && prev.UID != o.UID {
			b.fault("update of %s between two objects", e.Key)
		}
		b.there[e.Key] = o
	}
	dice := b.rnd.IntN(10)
	switch {
	case b.good || dice < 5:
		// It counts only when all earlier events of the key are acknowledged.
		if len(b.open[e.Key]) == 0 && !e.delivery.Inspect().More {
			b.acked[e.Key] = e.Seq
		}
		return nil
	case dice < 7:
		return errors.New("no")
	}
	b.later = append(b.later, e)
	if b.open[e.Key] == nil {
		b.open[e.Key] = map[*durable.Delivery]bool{}
	}
	b.open[e.Key][e.delivery] = true
	return ErrAckLater
}

func (b *believer) closed(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open[e.Key], e.delivery)
}

// answer acknowledges some of the events that were left for later, or none.
func (b *believer) answer(all bool) {
	b.mu.Lock()
	later := b.later
	b.later = nil
	var end []func()
	for _, e := range later {
		switch dice := b.rnd.IntN(4); {
		case all || dice == 0:
			end = append(end, func() { e.Ack(); b.closed(e) })
		case dice == 1:
			end = append(end, func() { e.Nack(nil) })
		case dice == 2:
			end = append(end, e.Keep)
			fallthrough
		default:
			b.later = append(b.later, e)
		}
	}
	b.mu.Unlock()
	for _, fn := range end {
		fn()
	}
}

// forget is the effect of a crash: everything that was not written may be told again.
func (b *believer) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked, b.later, b.open = map[string]uint64{}, nil, map[string]map[*durable.Delivery]bool{}
}

// TestDurableModel runs random programs of changes, answers, ends and crashes, with a
// journal that is far too small, and compares the handler's belief with the server.
func TestDurableModel(t *testing.T) {
	programs, steps := 6, 120
	if testing.Short() {
		programs = 2
	}
	first := uint64(time.Now().UnixNano())
	if s := os.Getenv("KUBEWAKE_SEED"); s != "" {
		var err error
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(programs) {
		seed := first + n
		t.Run(fmt.Sprint(seed), func(t *testing.T) { durableProgram(t, seed, steps) })
	}
}

func durableProgram(t *testing.T, seed uint64, steps int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.options = boltstore.Options{Window: time.Millisecond, FlushInterval: time.Hour, JournalBytes: int64(1 + rnd.IntN(3000))}
	b := &believer{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), there: map[string]*corev1.ConfigMap{}, uids: map[types.UID]cache.DeltaType{}, acked: map[string]uint64{}, last: map[string]uint64{}, open: map[string]map[*durable.Delivery]bool{}, turns: map[string]durable.Turn{}}
	handler := DurableHandlerFunc(func(_ context.Context, e Event) error { return b.handle(e) })
	begin := func(form string) *life {
		b.set(form)
		w.form = func(o *corev1.ConfigMap) { shape(o, form) }
		l := w.live(Options{handlerGrace: time.Nanosecond, TransformVersion: "form " + form, Transform: func(obj any) (any, error) {
			shape(obj.(*corev1.ConfigMap), form)
			return obj, nil
		}})
		if _, err := l.inf.AddDurableHandler("model", handler, DurableOptions{
			Workers: 1 + rnd.IntN(3), maxPending: 2 + rnd.IntN(20), stuckAfter: time.Millisecond,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Microsecond, 20*time.Millisecond),
		}); err != nil {
			t.Fatal(err)
		}
		return l.run()
	}
	form := ""
	start := func() *life {
		if rnd.IntN(4) == 0 {
			form = fmt.Sprint(rnd.IntN(3))
		}
		return begin(form)
	}
	name := func() string { return fmt.Sprint("o", rnd.IntN(12)) }
	change := func(i int) {
		n := name()
		switch {
		case w.sim.Create(cm(n, fmt.Sprint(i))) == nil:
		case rnd.IntN(3) == 0:
			w.delete(n)
			if rnd.IntN(2) == 0 {
				w.create(n, fmt.Sprint(i))
			}
		default:
			w.update(n, fmt.Sprint(i))
		}
	}
	for i := range rnd.IntN(30) {
		change(i)
	}
	l := start().synced()
	lives, crashes := 1, 0
	for i := range steps {
		for range rnd.IntN(12) {
			change(i)
		}
		switch dice := rnd.IntN(12); dice {
		case 0:
			l.equal().end()
			b.mu.Lock()
			b.later, b.open = nil, map[string]map[*durable.Delivery]bool{}
			b.mu.Unlock()
			l = start()
			lives++
		case 1:
			l = w.crash(l, b, start)
			lives++
			crashes++
		default:
			b.answer(false)
		}
	}
	b.mu.Lock()
	b.good = true
	b.mu.Unlock()
	l.equal()
	eventually(t, "acknowledged", func() bool {
		b.answer(true)
		for d := range l.inf.durables {
			if !l.inf.idle(d) {
				return false
			}
		}
		return true
	})
	hs, err := l.inf.store.Handlers()
	if err != nil || len(hs) != 1 {
		t.Fatal(hs, err)
	}
	l.end()
	b.compare(w)
	t.Logf("%d lives, %d crashes, %d events, collapsed %d", lives, crashes, b.told, hs[0].Collapsed)

	told := b.told
	l = begin(form).synced().equal().acknowledged()
	if b.told != told {
		t.Errorf("%d events told again after an orderly end", b.told-told)
	}
	l.end()
}

// crash goes on with a copy of the file as it is, without what is in memory.
func (w *world) crash(l *life, b *believer, start func() *life) *life {
	l.equal()
	var image []byte
	eventually(w.t, "a quiet file", func() bool {
		before := image
		image, _ = os.ReadFile(w.path)
		return bytes.Equal(before, image)
	})
	w.path = filepath.Join(w.t.TempDir(), "crashed.db")
	if err := os.WriteFile(w.path, image, 0o600); err != nil {
		w.t.Fatal(err)
	}
	l.end()
	b.forget()
	return start()
}

// compare compares its belief with the server.
func (b *believer) compare(w *world) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	objs, _, err := w.sim.List(&corev1.ConfigMap{})
	if err != nil {
		b.t.Fatal(err)
	}
	there := map[types.UID]bool{}
	for _, obj := range objs {
		o := obj.(*corev1.ConfigMap)
		there[o.UID] = true
		o = o.DeepCopy()
		shape(o, b.form)
		if got := b.there["default/"+o.Name]; !apiequality.Semantic.DeepEqual(o, got) {
			b.fault("%s: the server has %v, it believes in %v", o.Name, o, got)
		}
	}
	if len(b.there) != len(objs) {
		b.fault("it believes in %d objects of %d", len(b.there), len(objs))
	}
	for uid, last := range b.uids {
		if last != cache.Deleted && !there[uid] {
			b.fault("object %s is gone, and it was last told: %s", uid, last)
		}
	}
}
