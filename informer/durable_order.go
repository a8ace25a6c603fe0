package informer

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/objmeta"
)

// keyOrder is the order in which the keys of a workqueue are told. Preferred keys come
// first, so that those that fail, however many, do not hold up others. One call in four is
// for another key if there is one, so that these do not wait forever.
type keyOrder struct {
	mu          sync.Mutex
	preferred   sets.Set[string] // to be pushed
	first, rest []string
	popped      int
}

func newKeyOrder() *keyOrder { return &keyOrder{preferred: sets.New[string]()} }

// prefer has a key come first that is about to be added.
func (o *keyOrder) prefer(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.preferred.Insert(key)
}

// fresh is how many preferred keys wait.
func (o *keyOrder) fresh() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.first)
}

// Touch implements workqueue.Queue: a key that waits keeps its place.
func (o *keyOrder) Touch(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.preferred.Delete(key)
}

// Push implements workqueue.Queue.
func (o *keyOrder) Push(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.preferred.Has(key) {
		o.preferred.Delete(key)
		o.first = append(o.first, key)
	} else {
		o.rest = append(o.rest, key)
	}
}

// Len implements workqueue.Queue.
func (o *keyOrder) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.first) + len(o.rest)
}

// Pop implements workqueue.Queue.
func (o *keyOrder) Pop() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	from := &o.first
	if o.popped++; len(o.first) == 0 || o.popped%4 == 0 && len(o.rest) > 0 {
		from = &o.rest
	}
	key := (*from)[0]
	(*from)[0] = ""
	*from = (*from)[1:]
	return key
}

const (
	// recentKeys is of how many keys an object is kept, for Event.Old.
	recentKeys = 16
	// recentBytes is how large a kept object is at most, if it says how large it is.
	recentBytes = 64 << 10
)

// recentObjects has the objects that a handler was told last.
type recentObjects struct {
	of *lru.LRU[string, *recentObject]
}

type recentObject struct {
	acked, told any
	receipt     boltstore.Receipt // with which told was told
}

func newRecentObjects() recentObjects {
	of, err := lru.NewLRU[string, *recentObject](recentKeys, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return recentObjects{of}
}

// told notes an object that is being told. It returns the same object as it was last
// acknowledged, nil if it is not there.
func (r recentObjects) told(key string, receipt boltstore.Receipt, obj any) (old any) {
	o, ok := r.of.Get(key)
	if ok && obj != nil && o.acked != nil && objmeta.Of(o.acked).GetUID() == objmeta.Of(obj).GetUID() {
		old = o.acked
	}
	if s, ok := obj.(interface{ Size() int }); obj == nil || objmeta.Of(obj) == nil || ok && s.Size() > recentBytes {
		r.of.Remove(key)
		return old
	}
	r.of.Add(key, &recentObject{acked: old, told: obj, receipt: receipt})
	return old
}

// acknowledged notes that an object was acknowledged.
func (r recentObjects) acknowledged(key string, receipt boltstore.Receipt) {
	if o, ok := r.of.Peek(key); ok && o.receipt == receipt {
		o.acked = o.told
	}
}

// linesPerMinute is how many failures of a handler are logged at most.
const linesPerMinute = 100

// logLimit limits the lines in a log.
type logLimit struct {
	since            time.Time // the minute's begin
	logged, unlogged int       // in it
}

// allow says whether a line may be written now, and how many were not in an earlier minute.
func (l *logLimit) allow(now time.Time) (unlogged int, ok bool) {
	if now.Sub(l.since) >= time.Minute {
		unlogged = l.unlogged
		*l = logLimit{since: now}
	}
	if l.logged < linesPerMinute {
		l.logged++
		return unlogged, true
	}
	l.unlogged++
	return unlogged, false
}
