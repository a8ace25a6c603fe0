package informer

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// observer is a handler that keeps the changes it is told, over all lives, and checks
// them.
type observer struct {
	durable bool

	mu     sync.Mutex
	cond   sync.Cond
	life   *teller
	mood   string
	slow   string // the key of which it does not return
	back   bool   // the server was restored: versions may fall
	calls  int
	faults []string
	there  map[string]*corev1.ConfigMap
	last   map[types.UID]cache.DeltaType // the type of the change it was last told, for each object
	seen   map[string]bool               // versions
	acked  map[string]uint64             // since a crash
	fresh  map[string]bool               // keys of which it was told in this life
	gone   map[types.UID]bool            // objects of whose delete it was told in this life
	// removed are objects that the program deleted in its store. A list brings them back.
	// A new life tells both deletes, and leaves the Add between them to the replay.
	removed map[types.UID]bool
	seqs    map[string]uint64   // last told
	trace   map[string][]string // the last that it was told, for each key

	// later are events to be acknowledged when it goes on.
	later   []Event
	refused map[string]uint64 // last seq, by name
	begun   bool              // it was told the Reset with which a name begins
	again   bool              // it may be told it again: the acknowledgement was perhaps lost
	filled  bool              // and has settled since

	owed    map[string][]*flash // by name; what it was not told yet
	settled map[string]int64    // deletes of which it was told
}

func newObserver(acknowledges bool) *observer {
	o := &observer{durable: acknowledges, there: map[string]*corev1.ConfigMap{},
		last: map[types.UID]cache.DeltaType{}, seen: map[string]bool{}, acked: map[string]uint64{},
		fresh: map[string]bool{}, gone: map[types.UID]bool{},
		removed: map[types.UID]bool{}, seqs: map[string]uint64{}, trace: map[string][]string{},
		refused: map[string]uint64{}}
	o.cond.L = &o.mu
	return o
}

func (o *observer) behave(how string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mood = how
	o.cond.Broadcast()
	if how != "go on" {
		return
	}
	o.slow = ""
	for _, e := range o.later {
		o.ack(e)
	}
	o.later = nil
}

// stuck: its calls for a key do not return.
func (o *observer) stuck(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slow = key
	o.cond.Broadcast()
}

// leave ends its calls, with its unacknowledged events.
func (o *observer) leave() {
	if !o.durable { // its calls count
		o.behave("go on")
		return
	}
	o.behave("fail")
	o.stuck("")
}

// ack acknowledges an event. What it contains is told again only if it was refused before, or
// if the name is not registered in this life: then it is too late.
func (o *observer) ack(e Event) {
	e.Ack()
	if o.life != nil {
		o.accepts(e)
	}
}

func (o *observer) accepts(e Event) {
	if name := nameOf(e); e.Seq > o.refused[name] {
		o.acked[name] = max(o.acked[name], e.Seq)
	}
}

func (o *observer) refuses(e Event) error {
	o.refused[nameOf(e)] = max(o.refused[nameOf(e)], e.Seq)
	return errUnwilling
}

// answer acknowledges some of the events that it has left for later, in any order, and
// refuses some.
func (o *observer) answer(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var left []Event
	for i := range o.later {
		if n&1 > 0 {
			i = len(o.later) - 1 - i
		}
		switch e := o.later[i]; (i + n) % 4 {
		case 0:
			o.trace[nameOf(e)] = append(o.trace[nameOf(e)], fmt.Sprint("refuses ", e.Seq))
			e.Nack(o.refuses(e))
			if n&2 > 0 {
				left = append(left, e) // to be acknowledged after all
			}
		case 1:
			left = append(left, e)
		default:
			o.trace[nameOf(e)] = append(o.trace[nameOf(e)], fmt.Sprint("acknowledges ", e.Seq))
			o.ack(e)
		}
	}
	o.later = left
}

func nameOf(e Event) string {
	_, name, _ := cache.SplitMetaNamespaceKey(e.Key)
	return name
}

// teller is an observer in one life.
type teller struct{ *observer }

// live begins a life. Earlier acknowledgements stay unless something was lost.
func (o *observer) live(lost bool) *teller {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mood, o.slow, o.life = "go on", "", &teller{o}
	for name, t := range o.trace {
		o.trace[name] = append(t, fmt.Sprint("a new life, something lost: ", lost))
	}
	if lost {
		clear(o.acked)
		o.again = true
	}
	clear(o.fresh)
	clear(o.gone)
	for _, e := range o.later {
		e.Ack() // too late
	}
	o.later = nil
	return o.life
}

// programRemoves notes objects that the program has deleted in its store.
func (o *observer) programRemoves(uids []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, uid := range uids {
		o.removed[uid] = true
	}
}

// restored says whether the server is just being restored.
func (o *observer) restored(now bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.back = now
}

func (o *observer) die() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mood, o.life = "go on", nil
	o.cond.Broadcast()
}

// note keeps the last change told for a key.
func (o *observer) note(typ cache.DeltaType, obj *corev1.ConfigMap, old any, e *Event) {
	s := fmt.Sprintf("%s %s %s", typ, obj.UID, obj.ResourceVersion)
	if p, ok := old.(*corev1.ConfigMap); ok {
		s += " from " + p.ResourceVersion
	}
	if e != nil {
		s += fmt.Sprintf(" at %d attempt %d initial %v %s", e.Seq, e.Attempt, e.Initial, o.mood)
	}
	t := append(o.trace[obj.Name], s)
	o.trace[obj.Name] = t[max(0, len(t)-100):]
}

func (o *observer) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(map[bool]string{true: "durable: ", false: "plain: "}[o.durable]+format,
		args...))
}

var errUnwilling = errors.New("not now")

// called begins a call, of a Reset if name is empty. It returns once the handler no longer
// stalls.
func (t *teller) called(name string) error {
	t.calls++
	for (t.mood == "stall" || t.mood == "freeze" || name != "" && t.slow == name) && t.life == t {
		t.cond.Wait()
	}
	if t.life != t {
		return errUnwilling
	}
	return nil
}

// told is a call of a plain handler.
func (t *teller) told(typ cache.DeltaType, obj, old any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objectOf(typ, obj)
	if o == nil || t.called(o.Name) != nil {
		return
	}
	t.note(typ, o, old, nil)
	t.judge(typ, o, old, !t.fresh[o.Name])
	t.fresh[o.Name] = true
	t.believe(typ, o)
}

func (t *teller) objectOf(typ cache.DeltaType, obj any) *corev1.ConfigMap {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	o, ok := obj.(*corev1.ConfigMap)
	if !ok {
		t.fault("%s with a %T", typ, obj)
		return nil
	}
	return o
}

func (t *teller) believe(typ cache.DeltaType, o *corev1.ConfigMap) {
	t.gone[o.UID] = typ == cache.Deleted
	t.last[o.UID], t.seen[string(o.UID)+o.ResourceVersion] = typ, true
	if typ == cache.Deleted {
		t.flashTold(o)
		delete(t.there, o.Name)
	} else {
		t.there[o.Name] = o
	}
}

// judge compares a change with the handler's knowledge. anew: the handler may know a
// later state.
func (t *teller) judge(typ cache.DeltaType, o *corev1.ConfigMap, old any, anew bool) {
	was := t.there[o.Name]
	if typ == cache.Deleted && !t.durable && o.UID != "" && t.gone[o.UID] && !t.removed[o.UID] {
		t.fault("the delete of %s %s is told twice in a life: %q", o.Name, o.UID, t.trace[o.Name])
	}
	if prev, ok := old.(*corev1.ConfigMap); ok {
		if prev.UID != o.UID {
			t.fault("an update of %s between two objects", o.Name)
		}
		if !t.seen[string(prev.UID)+prev.ResourceVersion] {
			t.fault("%s %s is updated from %s, which was not told: %q", o.Name, o.UID, prev.ResourceVersion,
				t.trace[o.Name])
		}
		if !t.durable && (was == nil || was.ResourceVersion != prev.ResourceVersion) {
			t.fault("%s %s is updated from %s, and was last told to be %v: %q", o.Name, o.UID, prev.ResourceVersion,
				was, t.trace[o.Name])
		}
	} else if typ == cache.Updated {
		t.fault("an update of %s from nothing", o.Name)
	}
	if was == nil || anew && (t.durable || typ == cache.Deleted) {
		return
	}
	switch {
	case was.UID == o.UID && !t.durable && !anew && !t.back && versionOf(o) < versionOf(was) && typ != cache.Deleted:
		t.fault("%s steps back from %s to %s: %q", o.Name, was.ResourceVersion, o.ResourceVersion, t.trace[o.Name])
	case was.UID == o.UID:
	case typ == cache.Deleted:
		t.fault("%s, which is %s, is deleted as %s: %q", o.Name, was.UID, o.UID, t.trace[o.Name])
	default:
		t.fault("%s comes as %s, and the delete of %s was not told: %q", o.Name, o.UID, was.UID, t.trace[o.Name])
	}
}

func versionOf(o *corev1.ConfigMap) int {
	n, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return -1
	}
	return n
}

func (t *teller) OnAdd(obj any, _ bool) { t.told(cache.Added, obj, nil) }
func (t *teller) OnUpdate(old, obj any) { t.told(cache.Updated, obj, old) }
func (t *teller) OnDelete(obj any)      { t.told(cache.Deleted, obj, nil) }

// differs says which object it does not know, or still knows although it is gone.
func (o *observer) differs(want map[string]*corev1.ConfigMap) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name, why := sameMaps(want, o.there); why != "" {
		return fmt.Sprintf("%s: %q", why, o.trace[name])
	}
	if why := o.owes(); why != "" {
		return why
	}
	there := map[types.UID]bool{}
	for _, obj := range want {
		there[obj.UID] = true
	}
	for uid, typ := range o.last {
		switch {
		case there[uid]:
		case typ == cache.Deleted:
			delete(o.last, uid)
		default:
			return fmt.Sprintf("%s is gone, and was last told to be %s: %q", uid, typ, o.trace)
		}
	}
	return ""
}
