package boltstore

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// read runs fn on the contents, or on zero ones if readers see none. fn must not keep its
// arguments.
func (rd *reader) read(fn func(m *sourceMeta, src sourceTx, g contentsTx) error) error {
	return rd.s.view(func(m *sourceMeta, src sourceTx) error {
		rd.s.mu.RLock()
		hidden := rd.s.form.hides(m)
		rd.s.mu.RUnlock()
		if hidden {
			return fn(m, src, contentsTx{})
		}
		g, err := src.served(m)
		if err != nil {
			return err
		}
		return fn(m, src, g)
	})
}

// view runs fn on the source's buckets and the meta of the same commit. fn must not change
// the meta: other reads get it, too.
func (s *source) view(fn func(m *sourceMeta, src sourceTx) error) error {
	id := 0
	err := s.db.h.view(func(tx *bolt.Tx) error {
		id = tx.ID()
		src, err := s.bucket(tx)
		if err != nil {
			return err
		}
		m, err := s.db.parsed.meta(src)
		if err != nil {
			return err
		}
		return fn(m, src)
	})
	if s.memory.shown() != nil {
		s.db.h.settled(id) // a later read of memory must not see an earlier commit
	}
	return err
}

// known returns the object of exactly that record, nil if it is not in memory.
func (rd *reader) known(key string, r *format.Record) any {
	if obj := rd.s.memory.find(key, r); obj != nil {
		return obj
	}
	return rd.hot.get(key, r)
}

// keep keeps the object of a record in the cache, unless memory has all objects.
func (rd *reader) keep(key string, r *format.Record, obj any) {
	if rd.s.memory.shown() == nil {
		rd.hot.put(key, r, obj)
	}
}

// decode returns the object of a verified record, from memory if it is there. Callers
// that ask for the same record at once get the same object. keep puts it into the cache,
// before others may ask again.
func (rd *reader) decode(key string, r *format.Record, keep bool) (any, error) {
	if obj := rd.s.memory.find(key, r); obj != nil {
		return obj, nil
	}
	obj, done := rd.hot.once(key, r)
	if obj != nil {
		return obj, nil
	}
	defer func() { done(obj) }() // also if the codec panics
	obj, err := rd.decodeNew(key, r)
	if err == nil && keep {
		rd.keep(key, r, obj)
	}
	return obj, err
}

// sameCodec returns an error if another codec than the store's has made the record. A view
// may have another Go type than the program that did: that is no damage.
func (cd *coder) sameCodec(r *format.Record) error {
	switch id := cd.codec.ID(); {
	case r.Codec == id:
		return nil
	case cd.guessed:
		return fmt.Errorf("codec %d has stored it in another Go type, not codec %d: read it while its program runs",
			r.Codec, id)
	default:
		return fmt.Errorf("%w: codec %d, not %d", ErrDamaged, r.Codec, id)
	}
}

// decodeNew returns a new object.
func (rd *reader) decodeNew(key string, r *format.Record) (any, error) {
	if err := rd.s.coder.sameCodec(r); err != nil {
		return nil, fmt.Errorf("record of %q: %w", key, err)
	}
	buf := plainBufs.Get().(*[]byte)
	defer plainBufs.Put(buf)
	payload, err := plain(r, *buf)
	if err != nil {
		return nil, fmt.Errorf("record of %q: %w", key, err)
	}
	if r.Packed != format.NotPacked {
		*buf = payload
	}
	obj, err := rd.s.coder.decode(payload)
	if err != nil {
		return nil, fmt.Errorf("record of %q: %w: %v", key, ErrDamaged, err)
	}
	return obj, nil
}

// plainBufs hold payloads during decoding; objects do not refer to them.
var plainBufs = sync.Pool{New: func() any { return new([]byte) }}

// decodeAll opens and decodes records on all cores, within their transaction. The
// results are in the order of raws. An object that cannot be served is nil, and the
// error says why.
func (rd *reader) decodeAll(raws []layout.Raw, keep bool) (keys []string, objs []any, err error) {
	return rd.decodeListed(raws, keep, "", nil)
}

// decodeListed is decodeAll for records that an index lists under values; name "" means
// no index. A record without any of these values is not served. Its entry is damage
// that no checksum shows, such as an old page.
func (rd *reader) decodeListed(raws []layout.Raw, keep bool, name string, values []string) (
	keys []string, objs []any, err error,
) {
	keys, objs = make([]string, len(raws)), make([]any, len(raws))
	listed := oneOf(values)
	err = rd.decodeEach(raws, func(i int, key string, r *format.Record) error {
		keys[i] = key
		if name != "" && !slices.ContainsFunc(r.ValuesOf(name), listed) {
			return fmt.Errorf("index %s: %w: it lists %q under a value that its record does not have", name,
				ErrDamaged, key)
		}
		var err error
		objs[i], err = rd.decode(key, r, keep)
		return err
	})
	return keys, objs, err
}

// oneOf returns a function that says whether a value is among the given ones. There may
// be thousands of both.
func oneOf(values []string) func(string) bool {
	switch len(values) {
	case 0:
		return func(string) bool { return false }
	case 1:
		return func(v string) bool { return v == values[0] }
	}
	return sets.New(values...).Has
}

// decodeEach opens and parses records on all cores and calls fn with each. Records that
// are not copies must be in their transaction.
func (rd *reader) decodeEach(raws []layout.Raw, fn func(i int, key string, r *format.Record) error) error {
	errs := make([]error, len(raws))
	onCores(len(raws), 8, func(i int) {
		errs[i] = faults.Contain(func() error {
			raws[i] = layout.Raw{Key: raws[i].Key, Stored: raws[i].Open()}
			key, r, err := rd.s.coder.owner.ParseRecord(raws[i].Key, raws[i].Stored)
			if err != nil {
				return err
			}
			return fn(i, key, r)
		})
	})
	return errors.Join(errs...)
}

// onCores calls fn with each number below n, on all cores. A core more is worth it for few of them.
func onCores(n, few int, fn func(i int)) {
	var wg sync.WaitGroup
	var taken atomic.Int64
	one := func() {
		for i := int(taken.Add(1) - 1); i < n; i = int(taken.Add(1) - 1) {
			fn(i)
		}
	}
	for range min(runtime.GOMAXPROCS(0)-1, n/few) {
		wg.Go(one)
	}
	one()
	wg.Wait()
}

// note marks the source degraded if err is damage, and returns err.
func (hl *health) note(err error) error {
	if errors.Is(err, ErrDamaged) {
		hl.meet(err)
	}
	return err
}

// explained is note, and returns the error with the source's name.
func (hl *health) explained(err error) error {
	if hl.note(err) != nil {
		return fmt.Errorf("boltstore: %s: %w", hl.s.name, err)
	}
	return nil
}

// Get returns the stored object at the key of obj.
func (s *Store) Get(obj any) (any, bool, error) {
	key, err := s.coder.keyFunc(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return s.GetByKey(key)
}

// GetByKey returns the object at key. For an object that fails its checksum it returns an
// error, never the object.
func (s *Store) GetByKey(key string) (obj any, exists bool, err error) {
	if r := s.memory.shown(); r != nil {
		obj, exists = r.store.Get(key)
		return obj, exists, nil
	}
	return s.reader.get(key)
}

func (rd *reader) get(key string) (obj any, exists bool, err error) {
	err = rd.read(func(_ *sourceMeta, _ sourceTx, g contentsTx) error {
		r, ok := g.Items.Find(index.AppendKey(nil, key))
		if !ok {
			return nil
		}
		_, objs, err := rd.decodeAll([]layout.Raw{r}, true)
		obj, exists = objs[0], objs[0] != nil
		return err
	})
	return obj, exists, rd.s.health.explained(err)
}

// logClosed logs, once, that a method without an error to return reads a closed file.
func (rd *reader) logClosed(err error) {
	if errors.Is(err, ErrClosed) {
		rd.closedLogged.Do(func() {
			rd.s.db.log().Error(err, "The file is closed: lists of its objects are empty. Stop the goroutines that "+
				"read it before DB.Close", "source", rd.s.name.String(), "file", rd.s.db.path)
		})
	}
}

// List returns all objects. It cannot return an error: it leaves out objects that cannot
// be served and marks the source degraded; see [Store.ListErr]. Once the file is closed,
// List, ListKeys and ListIndexFuncValues return nothing. That is logged once, and
// [DB.Err] reports it. Methods with an error return ErrClosed.
func (s *Store) List() []any {
	objs, err := s.ListErr()
	s.reader.logClosed(err)
	return objs
}

// ListErr is List with an error. It also notices missing records, and records older than
// the last committed ones.
func (s *Store) ListErr() ([]any, error) {
	if r := s.memory.shown(); r != nil {
		return r.store.List(), nil
	}
	objs := []any{}
	err := s.reader.read(func(m *sourceMeta, _ sourceTx, g contentsTx) error {
		decoded, err := s.reader.all(m, g)
		objs = slices.DeleteFunc(decoded, func(o any) bool { return o == nil })
		return err
	})
	return objs, s.health.explained(err)
}

// all returns all objects, those that cannot be served as nil.
func (rd *reader) all(m *sourceMeta, g contentsTx) (objs []any, err error) {
	var raws []layout.Raw
	if err := g.Items.Each(func(r layout.Raw) { raws = append(raws, r) }); err != nil {
		return []any{}, err
	}
	_, objs, err = rd.decodeAll(raws, false)
	if err == nil && g.Items != nil && m.Degraded == "" {
		err = m.Items.compare(rd.s.coder.owner, raws)
	}
	return objs, err
}

// ListKeys returns all keys.
func (s *Store) ListKeys() []string {
	keys, err := s.ListKeysErr()
	s.reader.logClosed(err) // cache.Store has no error to return
	return keys
}

// ListKeysErr is ListKeys with an error that says why keys are missing.
func (s *Store) ListKeysErr() ([]string, error) {
	if r := s.memory.shown(); r != nil {
		return r.store.ListKeys(), nil
	}
	keys := []string{}
	err := s.reader.read(func(_ *sourceMeta, _ sourceTx, g contentsTx) error {
		var errs []error
		err := g.Items.Each(func(r layout.Raw) {
			key, err := keyOf(r)
			if err != nil {
				errs = append(errs, err)
				return
			}
			keys = append(keys, key)
		})
		return errors.Join(append(errs, err)...)
	})
	return keys, s.health.explained(err)
}

// keyOf is the key of an object in its bucket. Only a hashed key needs the record opened.
func keyOf(r layout.Raw) (string, error) {
	key, inline, err := index.ParseKey(r.Key)
	if err != nil || !inline {
		key, _, err = r.In.Owner.ParseRecord(r.Key, r.Open())
	}
	return key, err
}

// LastStoreSyncResourceVersion is the last version that the store has seen: that of the
// server's last change, list or bookmark, or of the program's last write. It is not
// the resume point, which is State.ResourceVersion.
func (s *Store) LastStoreSyncResourceVersion() string {
	if s.life.viewed {
		return s.newestMeta().ResourceVersion
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.writer.seen != nil {
		return *s.writer.seen
	}
	return s.meta.ResourceVersion
}

// Resync does nothing.
func (s *Claimed) Resync() error { return nil }

// reader finds and decodes records.
type reader struct {
	s            *source
	hot          *hotCache
	closedLogged sync.Once
}
