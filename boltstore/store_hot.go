package boltstore

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// hotCache keeps decoded objects within a budget in bytes of memory. A caller that holds
// a record asks for the object of exactly that record. So nothing in the cache ever needs
// to be invalidated.
type hotCache struct {
	budget func() int64

	mu      sync.Mutex
	used    int64
	lru     *simplelru.LRU[string, hotObject]
	pending map[string]*underWay // by key
}

// underWay is a record that is being decoded. Others wait for its object.
type underWay struct {
	crc   uint32
	rv    string
	ended chan struct{}
	obj   any // nil if that failed
}

type hotObject struct {
	crc  uint32
	rv   string
	obj  any
	size int64
}

// hotSources is how many sources may each fill their cache. More sources share as much.
const hotSources = 8

// share is the present budget of each source's cache. A cache that has more keeps it
// until it gets the next object.
func (cl *claims) share(hotBytes int64) int64 {
	return hotBytes * hotSources / max(cl.count.Load(), hotSources)
}

func newHotCache(budget func() int64) *hotCache {
	h := &hotCache{budget: budget, pending: map[string]*underWay{}}
	h.lru, _ = simplelru.NewLRU(1<<30, func(_ string, o hotObject) { h.used -= o.size })
	return h
}

func (h *hotCache) get(key string, r *format.Record) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.find(key, r)
}

func (h *hotCache) find(key string, r *format.Record) any {
	if o, ok := h.lru.Get(key); ok && o.crc == r.CRC && o.rv == r.ResourceVersion {
		return o.obj
	}
	return nil
}

// once returns the object of a record that is in the cache, or that another goroutine
// decodes now. If there is none, it returns nil and done, which the caller calls once it
// has decoded the record.
func (h *hotCache) once(key string, r *format.Record) (obj any, done func(any)) {
	h.mu.Lock()
	if obj := h.find(key, r); obj != nil {
		h.mu.Unlock()
		return obj, nil
	}
	d := h.pending[key]
	if d != nil && d.crc == r.CRC && d.rv == r.ResourceVersion {
		h.mu.Unlock()
		<-d.ended
		return d.obj, func(any) {} // it failed there: try alone
	}
	defer h.mu.Unlock()
	if d != nil { // another record of the key
		return nil, func(any) {}
	}
	d = &underWay{crc: r.CRC, rv: r.ResourceVersion, ended: make(chan struct{})}
	h.pending[key] = d
	return nil, func(obj any) {
		h.mu.Lock()
		defer h.mu.Unlock()
		d.obj = obj
		delete(h.pending, key)
		close(d.ended)
	}
}

// clear drops all objects.
func (h *hotCache) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lru.Purge()
}

func (h *hotCache) put(key string, r *format.Record, obj any) {
	size := int64(decodedSize(r.UnpackedSize()) + len(key))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lru.Remove(key)
	h.lru.Add(key, hotObject{crc: r.CRC, rv: r.ResourceVersion, obj: obj, size: size})
	h.used += size
	for budget := h.budget(); h.used > budget && h.lru.Len() > 0; {
		h.lru.RemoveOldest()
	}
}
