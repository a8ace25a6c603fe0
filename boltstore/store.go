package boltstore

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// Store reads a source in the file, with the methods of a cache.Indexer. It serves reads
// at once, whether or not the server can be reached. A read sees all of a commit or
// nothing of it. The objects it returns are shared and must not be modified. All methods
// are safe for concurrent use. [DB.View] and an informer's Store method return a Store.
type Store struct{ *source }

// source is one source in this process: its state as readers see it, and that of the claim.
type source struct {
	db     *DB
	name   Source
	id     string
	owner  format.Owner
	viewed bool // made by View: not claimed, only for reading

	coder    coder
	form     form
	reader   reader
	memory   memory
	indices  indices
	builder  builder
	handlers handlers
	writer   writer

	told        atomic.Uint64
	formDoubted atomic.Bool // see DoubtForm
	noPlain     atomic.Bool // see ExpectPlain; meta follows
	// metadataSize: see NoteMetadataSize.
	metadataSize atomic.Uint64
	// compared is when NoteCompared was last called, if no relist was committed since.
	compared atomic.Pointer[comparison]
	// stands: see NoteStands.
	stands atomic.Bool
	stale  atomic.Uint64
	awake  atomic.Bool // wake was called, or something was left, since the committer last took

	ended    chan struct{} // closed by Release
	endOnce  sync.Once
	retriers sync.WaitGroup

	user      atomic.Pointer[any] // see SetUser
	freshness atomic.Pointer[freshness]
	claimed   time.Time
	// committed is when the committer last wrote to the source. Only the committer uses
	// it.
	committed   time.Time
	currentLock sync.Mutex // see makeCurrent

	mu       sync.RWMutex
	meta     *sourceMeta
	broken   error
	brokenCh chan struct{} // closed while broken
	released bool
	changed  chan struct{} // closed at the next commit; nil if nobody has asked
	shut     bool          // the file is closed
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
// before anybody sees m.
func (s *source) setMeta(m *sourceMeta) {
	s.memory.follow(m)
	s.mu.Lock()
	first := s.meta != nil && !s.meta.listed() && m.listed()
	if s.meta != nil && m.ResourceVersion != s.meta.ResourceVersion {
		s.writer.seen = nil
	}
	s.meta = m
	s.builder.retryFailed()
	s.tellChanged()
	s.mu.Unlock()
	s.memory.settle()
	if first {
		s.db.tellKept(s.name)
	} else {
		s.db.tellCommitted(s.id)
	}
}

// setSeen notes the version of the program's last write. nil leaves it.
func (w *writer) setSeen(rv *string) {
	if rv != nil {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		w.seen = rv
	}
}
