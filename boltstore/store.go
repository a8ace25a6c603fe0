package boltstore

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// Store reads a source in the file, with the methods of a cache.Indexer. It serves reads
// at once, whether or not the server can be reached. A read sees all of a commit or
// nothing of it. The objects it returns are shared and must not be modified. All methods
// are safe for concurrent use. [DB.View] and an informer's Store method return a Store.
type Store struct{ *source }

// source is one source in this process: its state as readers see it, and that of the claim.
type source struct {
	db   *DB
	name Source
	id   string

	coder    coder
	form     form
	reader   reader
	memory   memory
	indices  indices
	builder  builder
	handlers handlers
	writer   writer
	health   health

	// compared is when NoteCompared was last called, if no relist was committed since.
	compared atomic.Pointer[comparison]
	facts    facts

	life life

	mu   sync.RWMutex
	meta *sourceMeta
	news news
}

// life is that of the claim.
type life struct {
	began      time.Time
	ended      chan struct{} // closed by Release
	once       sync.Once
	goroutines sync.WaitGroup
	released   bool // under s.mu
	viewed     bool // made by View: not claimed, only for reading

	user      atomic.Pointer[any] // see SetUser
	freshness atomic.Pointer[freshness]
}

// news is for those who wait for a commit. s.mu guards it.
type news struct {
	next chan struct{} // closed at the next commit; nil if nobody has asked
	shut bool          // the file is closed
}

// Source is the source that the store reads.
func (s *source) Source() Source { return s.name }

// ObjectType is the Go type of the source's objects.
func (s *Claimed) ObjectType() reflect.Type { return s.coder.goType }

func (s *source) metaNow() *sourceMeta {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.meta
}

// setMeta makes m the meta of the commit that readers see. Its objects are in memory
// before anybody sees m. seen is the version of a write by the program, nil if there was none.
func (s *source) setMeta(m *sourceMeta, seen *string) {
	s.memory.follow(m)
	s.mu.Lock()
	first := s.meta != nil && !s.meta.listed() && m.listed()
	if seen != nil || s.meta != nil && m.ResourceVersion != s.meta.ResourceVersion {
		s.writer.seen = seen
	}
	s.meta = m
	s.builder.retryFailed()
	s.tellChanged()
	s.mu.Unlock()
	s.memory.settle()
	if first {
		s.db.commits.tellKept(s.name)
	} else {
		s.db.commits.tell(s.id)
	}
}
