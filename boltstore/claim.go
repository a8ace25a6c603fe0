package boltstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/objmeta"
)

// Claim says which source a program claims, and how the program reads it.
type Claim struct {
	Source Source
	// Example is an object of the source's Go type. An unstructured or metadata example
	// may have apiVersion and kind. Otherwise each stored object shows them.
	Example runtime.Object
	// KeyFunc makes an object's key. Default
	// cache.DeletionHandlingMetaNamespaceKeyFunc.
	KeyFunc cache.KeyFunc
	// Indexers are the indices. IndexVersions has a version for each name. While the
	// version is the same, stored index values are used as they are: raise it whenever
	// the function changes, or the file keeps the old values. An index without a version is
	// built again by each claim, locally, beside other work: its function may depend on
	// settings. The namespace index needs none.
	Indexers      cache.Indexers
	IndexVersions map[string]string
	// Codec encodes types that need a form of their own. It is trusted.
	//
	// The default is codec.For(Example), which refuses types that it might not keep
	// whole. If the Go type is not one of Kubernetes' own, its first objects are encoded,
	// decoded and compared before they are stored. An object that comes back changed is
	// refused.
	Codec codec.Codec
	// ServeOutdated serves objects that were stored under another structure of their Go
	// type, or another transform, until a relist has replaced them. Set it for a program
	// that may be upgraded while offline. Fields that the earlier type did not have are
	// zero, and those that the present type does not have are left out. If an object cannot
	// be read, since another Codec has stored it or a field has another type, none is
	// served. See [Store.Outdated].
	ServeOutdated bool
}

// Claim takes the source for this process. Before it returns, it brings indices that have
// a version up to date. A second claim on a source returns ErrClaimed until the first is
// released.
func (db *DB) Claim(c Claim) (*Claimed, error) {
	if db == nil {
		return nil, fmt.Errorf("boltstore: claim %s: there is no file, but a nil DB: give the one that Open has "+
			"returned, and look at Open's error", c.Source)
	}
	if err := c.Source.validate(); err != nil {
		return nil, err
	}
	if objmeta.IsNil(c.Example) {
		return nil, fmt.Errorf("boltstore: claim %s: the example of its objects is nil: give an object of their "+
			"type, such as &corev1.Pod{}", c.Source)
	}
	s, err := newSource(db, c)
	if err != nil {
		return nil, err
	}
	db.claims.claiming.RLock()
	defer db.claims.claiming.RUnlock()
	db.claims.mu.Lock()
	switch {
	case db.claims.closed:
		err = fmt.Errorf("boltstore: claim %s: %w: the file was closed", c.Source, ErrClosed)
	case db.opts.ReadOnly:
		err = fmt.Errorf("boltstore: claim %s: %s was opened read-only: open it without Options.ReadOnly, or read "+
			"it by DB.View", c.Source, db.path)
	case db.claims.of[s.id] != nil:
		err = fmt.Errorf("boltstore: %s: %w in %s; share one informer, let one that ends end first (a factory's "+
			"Shutdown waits), or give Cluster or the selectors if these are different lists", c.Source, ErrClaimed,
			db.path)
	default:
		db.claims.of[s.id] = s
		db.claims.count.Store(int64(len(db.claims.of)))
	}
	db.claims.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err = s.load(c.Indexers); err != nil {
		db.claims.remove(s)
		db.commits.tell(s.id)
		return nil, err
	}
	db.warned.secrets(c.Source)
	db.warned.lacksFields(s.metaNow())
	s.form.hideUnreadable()
	db.commit.attach(s)
	s.memory.begin()
	claimed := newClaimed(&Store{s})
	if err := claimed.AddIndexers(c.Indexers); err != nil {
		s.release()
		return nil, err
	}
	db.commits.tellKept(c.Source)
	return claimed, nil
}

func newSource(db *DB, c Claim) (*source, error) {
	s := &source{
		db: db, name: c.Source, id: c.Source.ID(),
		life: life{began: db.opts.Clock.Now(), ended: make(chan struct{})},
	}
	goType := reflect.TypeOf(c.Example)
	s.coder = coder{owner: format.OwnerOf(s.id), codec: c.Codec, keyFunc: c.KeyFunc, metaKeys: c.KeyFunc == nil,
		goType: goType, form: c.Source.Form, kind: kindOf(c.Example, c.Source),
		packs: db.opts.Compression != CompressionNone}
	s.form = form{s: s, typeHash: codec.StructureHash(goType), lenient: c.ServeOutdated}
	s.reader = reader{s: s, hot: newHotCache(func() int64 { return db.claims.share(db.opts.hotBytes) })}
	s.memory = memory{s: s, mutated: cache.NewCacheMutationDetector(c.Source.String())}
	s.indices = indices{s: s, indexers: &indexSet{cache.Indexers{}}, number: rand.Text()}
	s.indices.versions = maps.Clone(c.IndexVersions)
	s.builder, s.writer = builder{s: s}, writer{s: s}
	s.health = health{s: s, ch: make(chan struct{})}
	s.handlers = handlers{s: s, byName: map[string]*Handler{}}
	if s.coder.keyFunc == nil {
		s.coder.keyFunc = cache.DeletionHandlingMetaNamespaceKeyFunc
	}
	if s.coder.codec == nil {
		var err error
		if s.coder.codec, err = codec.For(c.Example); err != nil {
			return nil, fmt.Errorf("boltstore: claim %s: %w; give a codec for the type (Codec)", c.Source, err)
		}
		s.coder.trial = newTrial(c.Example)
	}
	if id := s.coder.codec.ID(); id >= codec.IDCustom { // one form may have several codecs
		s.form.typeHash += fmt.Sprint(ofCodec, id)
	}
	return s, nil
}

// load reads the source's meta, or makes it with the indices.
func (s *source) load(fns cache.Indexers) error {
	found, err := s.find()
	if errors.Is(err, ErrDamaged) && !errors.Is(err, errTripped) {
		s.db.log().Error(err, "The description of a source in the file is damaged; the source is emptied and "+
			"will be listed",
			"source", s.name.String(), "file", s.db.path)
		err = s.db.h.update(func(tx *bolt.Tx) error {
			if _, err := s.db.h.makeAnew(tx, s.id, &sourceMeta{}); err != nil {
				return err
			}
			return s.create(tx, fns, true)
		}, nil)
	} else if err == nil && !found {
		err = s.db.h.update(func(tx *bolt.Tx) error {
			if err := s.db.h.sourcesListed(tx); err != nil {
				return err
			}
			return s.create(tx, fns, false)
		}, nil)
	}
	if err != nil {
		return fmt.Errorf("boltstore: claim %s in %s: %w", s.name, s.db.path, err)
	}
	m := s.metaNow()
	s.handlers.told.Store(m.Told)
	s.handlers.noPlain.Store(m.NoPlain)
	s.facts.note(func(f *listing.Facts) { *f = m.Facts })
	if m.Degraded != "" {
		s.health.meet(fmt.Errorf("%w: %s", ErrDamaged, m.Degraded))
	}
	return nil
}

// find reads the source's meta, if the file has the source.
func (s *source) find() (found bool, err error) {
	err = s.db.h.view(func(tx *bolt.Tx) error {
		src, ok := s.db.h.source(tx, s.id)
		if !ok {
			return nil
		}
		m, err := src.meta()
		if err == nil && m.Source != s.name {
			err = fmt.Errorf("%w: %s is where %s should be", ErrDamaged, m.Source, s.name)
		}
		if err == nil {
			_, err = src.served(m)
		}
		if err != nil {
			return err
		}
		s.setMeta(m, nil)
		found = true
		return nil
	})
	return found, err
}

// create makes the source, whose indices are complete since it has no objects. lost says that
// the file had the source and has lost it.
func (s *source) create(tx *bolt.Tx, fns cache.Indexers, lost bool) error {
	src, err := s.db.h.makeSource(tx, s.id)
	if err != nil {
		return err
	}
	m := (&sourceMeta{Source: s.name, formMeta: formMeta{TypeHash: s.form.typeHash}}).clone()
	s.coder.setKind(m)
	s.indices.complete(m, fns)
	m.NoPlain = !lost && !fileNamesLost(tx) // otherwise plain handlers may know it
	m.claimedNow(s.db.device)
	s.setMeta(m, nil)
	return src.putMeta(m)
}

// makeSource returns a source's buckets, which it makes if there are none.
func (h *handle) makeSource(tx *bolt.Tx, id string) (sourceTx, error) {
	sources, err := layout.Create(tx, layout.BucketSources)
	if err != nil {
		return sourceTx{}, err
	}
	b, err := layout.Create(sources, []byte(id))
	return sourceIn(b, id, h.seal), err
}

// Attach connects the source's producer with the committer. wake tells the committer that
// changes are pending. urgent says that they do not wait for the window: the producer
// accepts no more until they are committed, or something waits for them. Attach waits for a
// write by the program that is being committed, and refuses those that wait: from then on
// only the producer writes.
func (s Feed) Attach(p Producer) (wake func(urgent bool)) {
	s.mu.Lock()
	s.writer.producer = p
	s.mu.Unlock()
	s.writer.fail(s.writer.errFed())
	s.writer.underWay.Wait()
	return s.wake
}

func (w *writer) errFed() error { return fmt.Errorf("boltstore: write to %s: %w", w.s.name, ErrFed) }

// fedBy is the producer, nil if there is none.
func (w *writer) fedBy() Producer {
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	return w.producer
}

func (s *source) wake(urgent bool) {
	s.writer.awake.Store(true)
	signal(s.db.commit.wake)
	if urgent {
		signal(s.db.commit.urgent)
	}
}

// Flush asks the committer to write all pending changes and bookmarks now.
func (s Feed) Flush() { signal(s.db.commit.flush) }

// Closed is closed once the file is closed: nothing more is committed.
func (s Feed) Closed() <-chan struct{} { return s.db.commit.ended }

// Ended is closed once Release is called: changes that are not committed by then never
// are.
func (s Feed) Ended() <-chan struct{} { return s.life.ended }

// Release ends the claim: nothing more is committed for the source, and it can be
// claimed again. Release writes the told mark, acknowledgements, what NoteFacts and
// NoteCompared have noted, and the time of the claim. Reads go on as long as the file is open.
func (s *Claimed) Release() { s.release() }

func (s *source) release() {
	s.life.once.Do(func() {
		s.mu.Lock() // no further goroutine of the claim begins
		defer s.mu.Unlock()
		close(s.life.ended)
	})
	s.life.goroutines.Wait()
	s.db.commit.detach(s)
	s.memory.end()
	if s.handlers.toldChanged() || s.handlers.waiting() || s.claimDue() || s.notesChanged() {
		err := s.writeMarks()
		if err != nil && !errors.Is(err, ErrClosed) {
			s.db.log().Error(err,
				"The told mark and acknowledgements were not written; handlers will be told some changes again",
				"source", s.name.String())
		}
	}
	s.mu.Lock()
	s.life.released = true
	s.tellChanged()
	s.mu.Unlock()
	s.writer.fail(ErrClosed)
	s.db.claims.remove(s)
	s.db.commits.tell(s.id)
}
