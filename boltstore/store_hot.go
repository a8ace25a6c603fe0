package boltstore

import (
	"sync"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// hotCache keeps decoded objects within a budget in bytes of memory. A caller that
// holds a record asks for the object of just that record. So nothing in the cache must
// ever be invalidated.
type hotCache struct {
	budget int64

	mu   sync.Mutex
	used int64
	lru  *simplelru.LRU[string, hotObject]
}

type hotObject struct {
	crc  uint32
	rv   string
	obj  any
	size int64
}

func newHotCache(budget int64) *hotCache {
	h := &hotCache{budget: budget}
	h.lru, _ = simplelru.NewLRU(1<<30, func(_ string, o hotObject) { h.used -= o.size })
	return h
}

func (h *hotCache) get(key string, r *format.Record) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := h.lru.Get(key); ok && o.crc == r.CRC && o.rv == r.ResourceVersion {
		return o.obj
	}
	return nil
}

func (h *hotCache) put(key string, r *format.Record, obj any) {
	size := int64(decodedSize(r.UnpackedSize()) + len(key))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lru.Remove(key)
	h.lru.Add(key, hotObject{crc: r.CRC, rv: r.ResourceVersion, obj: obj, size: size})
	h.used += size
	for h.used > h.budget && h.lru.Len() > 0 {
		h.lru.RemoveOldest()
	}
}
