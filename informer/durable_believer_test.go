package informer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewake/kubewake/boltstore"
)

// believer is a durable handler of random answers that checks what it is told against what it
// has been told and has acknowledged, over all lives.
type believer struct {
	t   *testing.T
	mu  sync.Mutex
	rnd *rand.Rand

	good   bool // it acknowledges everything
	form   string
	life   int
	calls  int                        // under way
	busy   map[string]bool            // keys of them
	resets map[boltstore.Receipt]bool // that it was told
	most   int                        // of them

	gone    map[string]int    // deletes by the server, by key
	born    map[types.UID]int // of these, before the object was created
	there   map[string]*corev1.ConfigMap
	owed    map[types.UID]string // objects that it was told, and is still to be told the delete of
	accepts map[string]uint64    // seq acknowledged, in this life, or durably
	refused map[string]uint64
	seqs    map[string]uint64  // last told, in this life
	acked   map[string]bool    // versions of objects
	kept    map[types.UID]bool // objects acknowledged before their delete, durably
	later   []Event
	late    []Event // of earlier lives
	counts  struct{ lives, crashes, told, resets, deletes, mostDeletes int }
}

func newBeliever(t *testing.T, seed uint64) *believer {
	b := &believer{t: t, rnd: rand.New(rand.NewPCG(seed, 2)), busy: map[string]bool{}, acked: map[string]bool{},
		kept:   map[types.UID]bool{},
		resets: map[boltstore.Receipt]bool{}, most: 1, gone: map[string]int{}, born: map[types.UID]int{}}
	b.reset()
	return b
}

func (b *believer) reset() {
	b.there, b.owed, b.later = map[string]*corev1.ConfigMap{}, map[types.UID]string{}, nil
	b.accepts, b.refused, b.seqs = map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
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

// begin begins a life in which all objects have a form.
func (b *believer) begin(form string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.form, b.seqs = form, map[string]uint64{}
	b.life++
	b.counts.lives++
}

// ended is the effect of an orderly end: what was answered is written.
func (b *believer) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late, b.later = append(b.late, b.later...), nil
}

// crashed is the effect of a crash: everything that was not written may be told again. The
// caller holds the mutex.
func (b *believer) crashed() {
	b.life++ // calls of this life are not made any more
	b.counts.crashes++
	b.accepts, b.kept = map[string]uint64{}, map[types.UID]bool{}
	b.late, b.later = append(b.late, b.later...), nil
	b.most++ // a Reset may be lost, and come again
}

// another says that another cluster is about to answer.
func (b *believer) another() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most++
}

func (b *believer) fault(format string, args ...any) { b.t.Errorf(format, args...) }

var errOfLife = errors.New("its life has ended")

func (b *believer) handle(life int, e Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if life != b.life {
		return errOfLife
	}
	if b.busy[e.Key] || b.calls > 0 && e.Reset || b.busy[""] {
		b.fault("%q is told while %v are", e.Key, b.busy)
	}
	b.busy[e.Key] = true
	b.calls++
	for range b.rnd.IntN(3) { // other calls come between
		b.mu.Unlock()
		b.mu.Lock()
	}
	b.calls--
	delete(b.busy, e.Key)
	if life != b.life {
		return errOfLife
	}
	b.counts.told++
	if e.Reset {
		return b.toldReset(e)
	}
	b.told(e)
	return b.answerTo(e)
}

func (b *believer) toldReset(e Event) error {
	b.counts.resets++
	if b.resets[e.call.receipt] = true; len(b.resets) > b.most {
		b.fault("%d Resets, and there were %d reasons", len(b.resets), b.most)
	}
	b.reset()
	return b.answerTo(e)
}

// told takes in what it is told.
func (b *believer) told(e Event) {
	if e.Seq < b.seqs[e.Key] {
		b.fault("%s: %d told after %d", e.Key, e.Seq, b.seqs[e.Key])
	}
	if seq, ok := b.accepts[e.Key]; ok && e.Seq <= seq {
		b.fault("%s: %d told when %d was acknowledged", e.Key, e.Seq, seq)
	}
	b.seqs[e.Key] = e.Seq
	for what, obj := range objectsOf(e) {
		o, ok := obj.(*corev1.ConfigMap)
		if ok && o.Data["form"] != b.form {
			b.fault("%s of %d: the %s has form %q, not %q", e.Key, e.Seq, what, o.Data["form"], b.form)
		}
		if ok && what == "old object" && !b.acked[versionIn(o)] {
			b.fault("%s of %d: the old object %s was not acknowledged", e.Key, e.Seq, versionIn(o))
		}
	}
	b.toldDeletes(e)
	o, ok := e.Object.(*corev1.ConfigMap)
	if e.Object != nil && !ok {
		b.fault("%s with a %T", e.Key, e.Object)
	}
	if !ok {
		if len(e.Deleted) == 0 {
			b.fault("%s of %d tells nothing", e.Key, e.Seq)
		}
		delete(b.there, e.Key)
		return
	}
	if _, whole := o.Data["data"]; whole == (b.form == without) {
		b.fault("%s of %d in form %q with %v", e.Key, e.Seq, b.form, o.Data)
	}
	if old, ok := e.Old.(*corev1.ConfigMap); ok && old.UID != o.UID {
		b.fault("%s of %d: update between two objects", e.Key, e.Seq)
	}
	for uid, key := range b.owed {
		if key != e.Key || uid == o.UID {
			continue
		}
		delete(b.owed, uid)
		if !b.dropped(key, uid) {
			b.fault("%s of %d comes as %s, and the delete of %s was not told: %d deletes", e.Key, e.Seq, o.UID, uid,
				len(e.Deleted))
		}
	}
	b.there[e.Key], b.owed[o.UID] = o, e.Key
}

// toldDeletes takes in the deletes.
func (b *believer) toldDeletes(e Event) {
	last := uint64(0)
	for i, g := range e.Deleted {
		if g.Seq <= last || g.Seq > e.Seq {
			b.fault("%s of %d: a delete of %d after %d", e.Key, e.Seq, g.Seq, last)
		}
		last = g.Seq
		obj := objectsOf(e)[fmt.Sprint("deleted object ", i)]
		o, ok := obj.(*corev1.ConfigMap)
		if !ok {
			b.fault("the delete of %s with a %T", e.Key, g.Object)
			continue
		}
		delete(b.owed, o.UID)
	}
	b.counts.deletes += len(e.Deleted)
	b.counts.mostDeletes = max(b.counts.mostDeletes, len(e.Deleted))
}

// deleted notes that the server is about to delete objects, at most one of each key.
func (b *believer) deleted(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		b.gone[key]++
	}
}

// created notes an object.
func (b *believer) created(o *corev1.ConfigMap) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.born[o.UID] = b.gone[keyOf(o)]
}

// dropped says whether the delete of an object may have been dropped: it was not
// acknowledged before, and was followed by seven others.
func (b *believer) dropped(key string, uid types.UID) bool {
	return !b.kept[uid] && b.gone[key] >= b.born[uid]+mostDeletes
}

func versionIn(o *corev1.ConfigMap) string { return string(o.UID) + "@" + o.ResourceVersion }

// answerTo answers a call.
func (b *believer) answerTo(e Event) error {
	switch dice := b.rnd.IntN(10); {
	case b.good, dice < 5:
		b.accept(e)
		return nil
	case dice < 7:
		b.refuse(e)
		return errors.New("no")
	}
	b.later = append(b.later, e)
	return ErrAckLater
}

// accept notes an acknowledgement, before it is given. What was refused before may be told
// again at the same time.
func (b *believer) accept(e Event) {
	if e.Reset {
		return
	}
	if o, ok := e.Object.(*corev1.ConfigMap); ok {
		b.acked[versionIn(o)] = true
		if b.gone[e.Key] == b.born[o.UID] {
			b.kept[o.UID] = true // its delete comes after all that it contains
		}
	}
	if e.Seq > b.refused[e.Key] {
		b.accepts[e.Key] = max(b.accepts[e.Key], e.Seq)
	}
}

func (b *believer) refuse(e Event) { b.refused[e.Key] = max(b.refused[e.Key], e.Seq) }

// answer answers some of the calls that were left for later, or all. Some are refused first
// and acknowledged later, some are of earlier lives.
func (b *believer) answer(all bool) {
	b.mu.Lock()
	later := b.later
	b.later = nil
	var answers []func()
	for _, e := range later {
		switch dice := b.rnd.IntN(5); {
		case all || dice == 0:
			b.accept(e)
			answers = append(answers, e.Ack)
		case dice == 1:
			b.refuse(e)
			answers = append(answers, func() { e.Nack(nil) })
			if b.rnd.IntN(2) == 0 && !e.Reset {
				b.later = append(b.later, e)
			}
		default:
			b.later = append(b.later, e)
		}
	}
	for _, e := range b.late {
		answers = append(answers, e.Ack)
	}
	b.late = nil
	b.rnd.Shuffle(len(answers), func(i, j int) { answers[i], answers[j] = answers[j], answers[i] })
	b.mu.Unlock()
	for _, answer := range answers {
		answer()
	}
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
	for _, obj := range objs {
		o := obj.(*corev1.ConfigMap)
		delete(b.owed, o.UID)
		o = o.DeepCopy()
		shape(o, b.form)
		if got := b.there["default/"+o.Name]; !apiequality.Semantic.DeepEqual(o, got) {
			b.fault("%s: the server has %v, it believes in %v", o.Name, o, got)
		}
	}
	if len(b.there) != len(objs) {
		b.fault("it believes in %d objects of %d", len(b.there), len(objs))
	}
	for uid, key := range b.owed {
		if !b.dropped(key, uid) {
			b.fault("object %s of %s is gone, and its delete was not told", uid, key)
		}
	}
}
