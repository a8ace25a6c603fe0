package boltstore

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// Store reads a source in the file, with the methods of a cache.Indexer. It serves reads
// at once, whether or not the server can be reached. A read sees all of a commit or
// nothing of it. The objects it returns are shared and must not be modified. All methods
// are safe for concurrent use. [DB.View] and an informer's Store method return a Store.
//
// It is one type because everything in it belongs to one source, its state and its
// lock. Its roles have types that hold the Store: indexing, reading. A third of its
// methods are cache.Indexer's.
type Store struct {
	db       *DB
	source   Source
	id       string
	owner    format.Owner
	codec    codec.Codec
	trial    *trial // nil: the codec is known to keep objects whole
	keyFunc  cache.KeyFunc
	metaKeys bool // keyFunc is client-go's
	hot      *hotCache
	memory   memory
	viewed   bool                    // made by View: not claimed, only for reading
	faithful bool                    // the view decodes in the same way as the program that wrote the records
	lenient  bool                    // outdated objects are served
	again    func(any) (any, error)  // see TransformAgain
	typeHash string                  // structure hash of the Go type
	kind     schema.GroupVersionKind // empty: the first object shows it
	shown    atomic.Pointer[schema.GroupVersionKind]

	told    atomic.Uint64
	noPlain atomic.Bool // see ExpectPlain; meta follows
	// metadataSize: see NoteMetadataSize.
	metadataSize atomic.Uint64
	// compared is when NoteCompared was last called, if no relist was committed since.
	compared atomic.Pointer[comparison]
	// stands: see NoteStands.
	stands atomic.Bool
	stale  atomic.Uint64
	awake  atomic.Bool // wake was called, or something was left, since the committer last took

	indexFailures atomic.Uint64 // in this life
	ended         chan struct{} // closed by Release
	endOnce       sync.Once
	closedLogged  sync.Once
	goType        reflect.Type
	retriers      sync.WaitGroup
	writes        sync.WaitGroup // by the program, under way

	user      atomic.Pointer[any] // see SetUser
	freshness atomic.Pointer[freshness]
	claimed   time.Time
	// committed is when the committer last wrote to the source. Only the committer uses
	// it.
	committed time.Time

	// indexLock is held while indices are built, addLock while they are added to the
	// set. Both are held when a relist becomes visible. indexLock is taken first.
	indexLock, addLock sync.Mutex
	currentLock        sync.Mutex // see makeCurrent
	lastAcks           sync.Mutex // see Handler.writeLast

	mu        sync.RWMutex
	meta      *sourceMeta
	indexers  *indexSet
	versions  map[string]string
	number    string   // of the claim: random
	tried     sync.Map // <-chan struct{} by index: see readBuilt
	transform string
	broken    error
	brokenCh  chan struct{} // closed while broken
	producer  Producer
	queue     []*direct
	released  bool
	seen      *string             // version of the program's last write, nil once the server's is newer
	reindexed map[string]uint64   // how often the objects were indexed again, by index
	handlers  map[string]*Handler // by name; nil while one is being registered
	changed   chan struct{}       // closed at the next commit; nil if nobody has asked
	shut      bool                // the file is closed
	expectant bool                // see ExpectProducer
	retrying  bool                // a goroutine calls failed index functions again
}

// Source is the source that the store reads.
func (s *Store) Source() Source { return s.source }

// ObjectType is the Go type of the source's objects.
func (s *Claimed) ObjectType() reflect.Type { return s.goType }

func (s *Store) metaNow() *sourceMeta {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.meta
}

// setMeta makes m the meta of the commit that readers see. Its objects are in memory
// before anybody sees m.
func (s *Store) setMeta(m *sourceMeta) {
	s.remember(m)
	s.mu.Lock()
	first := s.meta != nil && !s.meta.listed() && m.listed()
	if s.meta != nil && m.ResourceVersion != s.meta.ResourceVersion {
		s.seen = nil
	}
	s.meta = m
	s.indexing().retryFailed()
	s.tellChanged()
	s.mu.Unlock()
	s.settleMemory()
	if first {
		s.db.tellKept(s.source)
	} else {
		s.db.tellCommitted(s.id)
	}
}

// setSeen notes the version of the program's last write. nil leaves it.
func (s *Store) setSeen(rv *string) {
	if rv != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = rv
	}
}
