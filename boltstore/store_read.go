package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
)

// read runs fn on the generation that is served, of a zero genTx where
// nothing is. fn must not keep what it is given.
func (s *Store) read(fn func(m *sourceMeta, src sourceTx, g genTx) error) error {
	return s.view(func(m *sourceMeta, src sourceTx) error {
		s.mu.RLock()
		hidden := !s.lenient && s.outdated(m) != ""
		s.mu.RUnlock()
		if hidden {
			return fn(m, src, genTx{})
		}
		return fn(m, src, src.gen(m.Generation))
	})
}

// view runs fn on the source's buckets and the meta of the same commit.
func (s *Store) view(fn func(m *sourceMeta, src sourceTx) error) error {
	return s.db.h.view(func(tx *bolt.Tx) error {
		src, ok := s.db.h.source(tx, s.id)
		if !ok {
			return fmt.Errorf("%w: %s", ErrNoSource, s.source)
		}
		m, err := src.meta()
		if err != nil {
			return err
		}
		return fn(m, src)
	})
}

// decode returns the object of a verified record, a hot one if there is one.
func (s *Store) decode(key string, r *format.Record) (any, error) {
	if obj := s.hot.get(key, r); obj != nil {
		return obj, nil
	}
	if r.Codec != s.codec.ID() {
		return nil, fmt.Errorf("record of %q: %w: codec %d, not %d", key, ErrDamaged, r.Codec, s.codec.ID())
	}
	buf := plainBufs.Get().(*[]byte)
	defer plainBufs.Put(buf)
	payload, err := s.plain(r, *buf)
	if err != nil {
		return nil, fmt.Errorf("record of %q: %w", key, err)
	}
	if r.Packed != format.NotPacked {
		*buf = payload
	}
	obj, err := s.codec.Decode(payload)
	if err != nil {
		return nil, fmt.Errorf("record of %q: %w: %v", key, ErrDamaged, err)
	}
	return obj, nil
}

// plainBufs hold payloads while they are decoded; objects keep nothing of them.
var plainBufs = sync.Pool{New: func() any { return new([]byte) }}

// decodeAll opens and decodes records on all cores, in order, within their
// transaction.
// Those that cannot be served are nil and counted in the error.
func (s *Store) decodeAll(raws []layout.Raw, keep bool) (keys []string, objs []any, err error) {
	return s.decodeListed(raws, keep, "", nil)
}

// decodeListed is decodeAll of what an index has under the values, unless name
// is "". A record that lists none of them is not served: the entry is damage,
// such as a page of before, which no checksum tells.
func (s *Store) decodeListed(raws []layout.Raw, keep bool, name string, values []string) (keys []string, objs []any, err error) {
	keys, objs = make([]string, len(raws)), make([]any, len(raws))
	errs := make([]error, len(raws))
	workers := min(runtime.GOMAXPROCS(0), len(raws)/8+1)
	var wg sync.WaitGroup
	one := func(w int) {
		for i := w; i < len(raws); i += workers {
			errs[i] = faults.Contain(func() error {
				raws[i] = layout.Raw{Key: raws[i].Key, Stored: raws[i].Open()}
				key, r, err := format.ParseRecord(raws[i].Key, raws[i].Stored)
				if err != nil {
					return err
				}
				keys[i] = key
				if name != "" && !slices.ContainsFunc(r.ValuesOf(name), func(v string) bool { return slices.Contains(values, v) }) {
					return fmt.Errorf("index %s: %w: it lists %q under a value that its record has not", name, ErrDamaged, key)
				}
				if objs[i], err = s.decode(key, r); err == nil && keep {
					s.hot.put(key, r, objs[i])
				}
				return err
			})
		}
	}
	for w := 1; w < workers; w++ {
		wg.Go(func() { one(w) })
	}
	one(0)
	wg.Wait()
	return keys, objs, errors.Join(errs...)
}

// note marks the source degraded where err is damage.
func (s *Store) note(err error) error {
	if errors.Is(err, ErrDamaged) {
		s.damaged(err)
	}
	return err
}

// Get returns the stored object with the key of obj.
func (s *Store) Get(obj any) (any, bool, error) {
	key, err := s.keyFunc(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return s.GetByKey(key)
}

// GetByKey returns the object at key. An object that fails its checksum is an
// error, never returned.
func (s *Store) GetByKey(key string) (obj any, exists bool, err error) {
	err = s.read(func(_ *sourceMeta, _ sourceTx, g genTx) error {
		if g.Items == nil {
			return nil
		}
		k := index.AppendKey(nil, key)
		r, ok := g.Items.Find(k)
		if !ok {
			return nil
		}
		_, objs, err := s.decodeAll([]layout.Raw{r}, true)
		obj, exists = objs[0], objs[0] != nil
		return err
	})
	if s.note(err) != nil {
		return nil, false, fmt.Errorf("boltstore: %s: %w", s.source, err)
	}
	return obj, exists, nil
}

// tellClosed logs, once, that somebody reads a closed file by a method that has
// no error to return.
func (s *Store) tellClosed(err error) {
	if errors.Is(err, ErrClosed) {
		s.toldClosed.Do(func() {
			s.db.log().Error(err, "The file is closed: lists of its objects are empty; end who reads them before DB.Close", "source", s.source.String(), "file", s.db.path)
		})
	}
}

// List returns all objects. It has no error to return: what cannot be served
// is left out, after the source was marked degraded; see [Store.ListErr]. Once
// the file is closed it is empty, which is logged once and told by [DB.Err];
// so are ListKeys and ListIndexFuncValues. Methods with an error return
// ErrClosed.
func (s *Store) List() []any {
	objs, err := s.ListErr()
	s.tellClosed(err)
	return objs
}

// ListErr is List with the error that List swallows. It also notices records
// that are missing, or older than what was last committed.
func (s *Store) ListErr() ([]any, error) {
	objs := []any{}
	err := s.read(func(m *sourceMeta, _ sourceTx, g genTx) error {
		var raws []layout.Raw
		if err := g.Items.Each(func(r layout.Raw) { raws = append(raws, r) }); err != nil {
			return err
		}
		_, decoded, err := s.decodeAll(raws, false)
		objs = slices.DeleteFunc(decoded, func(o any) bool { return o == nil })
		if err == nil && g.Items != nil && m.Degraded == "" {
			err = m.Items.compare(raws)
		}
		return err
	})
	if s.note(err) != nil {
		err = fmt.Errorf("boltstore: %s: %w", s.source, err)
	}
	return objs, err
}

func each(b *bolt.Bucket, fn func(k, v []byte) error) error {
	if b == nil {
		return nil
	}
	return b.ForEach(fn)
}

// ListKeys returns all keys.
func (s *Store) ListKeys() []string {
	keys := []string{}
	err := s.read(func(_ *sourceMeta, _ sourceTx, g genTx) error {
		return g.Items.Each(func(r layout.Raw) {
			if key, err := keyOf(r); err == nil {
				keys = append(keys, key)
			}
		})
	})
	s.tellClosed(s.note(err)) // the interface has no error
	return keys
}

// keyOf is the object's key; only a hashed one needs the record.
func keyOf(r layout.Raw) (string, error) {
	key, inline, err := index.ParseKey(r.Key)
	if err == nil && !inline {
		key, _, err = format.ParseRecord(r.Key, r.Open())
	}
	return key, err
}

// Page is a run of objects in the order of the file.
type Page struct {
	Keys    []string
	Objects []any
	// Next is where the following page begins, nil after the last one.
	Next []byte
	// Seq is the last journal entry that the page's snapshot contains.
	Seq uint64
	// Epoch is the one that the objects are of.
	Epoch uint64
	// Synced is false as long as the source has never been read from the
	// server, or is not served; the page is empty then.
	Synced bool
}

// Before says whether key comes before the page that begins at next, nil being
// the end. The order is the file's, which is not that of the keys.
func (s *Claimed) Before(key string, next []byte) bool {
	if next == nil {
		return true
	}
	s.db.h.mu.RLock()
	defer s.db.h.mu.RUnlock()
	return s.passed(parseMarks(next), index.AppendKey(nil, key))
}

// Page reads the objects from the given place on, nil being the start: at most
// n of them and about a MiB, all from one commit. The order is stable as long
// as the file is open; each object is in one page, whatever happens meanwhile.
func (s *Store) Page(from []byte, n int) (p Page, err error) {
	return s.pageFor(from, n, func(m *sourceMeta, g genTx) genTx {
		g.Own = nil
		return g
	})
}

// ServerPage is Page with the objects as the server showed them last, for
// handlers: what the program itself has written is left out. It is not synced
// before the server has been read.
func (s *Store) ServerPage(from []byte, n int) (p Page, err error) {
	return s.pageFor(from, n, func(m *sourceMeta, g genTx) genTx {
		if !m.listed() {
			return genTx{}
		}
		return g
	})
}

func (s *Store) pageFor(from []byte, n int, as func(*sourceMeta, genTx) genTx) (p Page, err error) {
	err = s.read(func(m *sourceMeta, _ sourceTx, g genTx) error {
		g = as(m, g)
		p.Seq, p.Epoch, p.Synced = m.Seq, m.Epoch, g.Items != nil
		if g.Items == nil {
			return nil
		}
		raws, next, err := s.pageOf(g, from, n)
		if err != nil {
			return err
		}
		p.Next = next
		p.Keys, p.Objects, err = s.decodeAll(raws, false)
		return err
	})
	if s.note(err) != nil {
		err = fmt.Errorf("boltstore: %s: %w", s.source, err)
	}
	return p, err
}

// pageBytes bounds the records of a page of the objects: decoded they take
// some four times as much.
const pageBytes = 256 << 10

// pageOf is a page's records, as the server showed them last if g has the bases
// of what the program has written, and where the next page begins.
func (s *Store) pageOf(g genTx, from []byte, n int) (raws []layout.Raw, next []byte, err error) {
	size := 0
	now := mark{era: uint64(len(s.db.h.past))}
	past := parseMarks(from)
	if n := len(past); n > 0 && past[n-1].era == now.era {
		past, now = past[:n-1], past[n-1]
	}
	c := g.cursor()
	at, item, base := c.Seek(now.at)
	for ; at != nil && len(raws) < n && size < pageBytes; at, item, base = c.Next() {
		r := shown(item, base)
		if r.In == nil || len(past) > 0 && s.passed(past, r.Key) {
			continue
		}
		raws = append(raws, r)
		size += len(r.Stored)
	}
	if at == nil {
		return raws, nil, nil
	}
	if bytes.Compare(at, now.at) <= 0 {
		return nil, nil, layout.OutOfOrder(at)
	}
	now.at = at
	return raws, append(past, now).bytes(), nil
}

// GetIndexers returns the indexers.
func (s *Store) GetIndexers() cache.Indexers { return maps.Clone(s.indexSet().fns) }

func (s *Store) indexer(name string) (cache.IndexFunc, error) {
	if f := s.indexSet().fns[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("Index with name %s does not exist", name) //nolint:staticcheck // client-go's exact text is relied on
}

// values computes the values of a change's object under the indices of its set.
// A function that fails or panics has none, which is noted with the change.
func (s *Store) values(c *Change) {
	c.values, c.failed, c.failedWhy = nil, nil, ""
	obj, undecoded := s.objectOf(c)
	for _, name := range slices.Sorted(maps.Keys(c.set.fns)) {
		var values []string
		err := undecoded
		if err == nil {
			values, err = callIndexer(name, c.set.fns[name], obj)
		}
		if err != nil {
			c.failed, c.failedWhy = append(c.failed, name), short(err)
			s.unindexed(err, c.key)
		}
		c.values = append(c.values, format.IndexValues{Name: name, Values: values})
	}
}

// unindexed reports the failures of index functions: the first, the second, the
// fourth, and so on.
func (s *Store) unindexed(err error, key string) {
	if n := s.indexFailures.Add(1); n&(n-1) == 0 {
		s.db.log().Error(err, "An object is without values in an index until its function succeeds", "source", s.source.String(), "key", key, "failures", n)
	}
}

func callIndexer(name string, fn cache.IndexFunc, obj any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("index %s: its function panicked: %v", name, r)
		}
	}()
	if values, err = fn(obj); err != nil {
		return nil, fmt.Errorf("index %s: %w", name, err)
	}
	return sets.List(sets.New(values...)), nil
}

// Index returns the objects that share a value of the index with obj.
func (s *Store) Index(name string, obj any) ([]any, error) {
	fn, err := s.indexer(name)
	if err != nil {
		return nil, err
	}
	values, err := fn(obj)
	if err != nil {
		return nil, err
	}
	return s.byIndex(name, values)
}

// ByIndex returns the objects that have the value under the index.
func (s *Store) ByIndex(name, value string) ([]any, error) {
	if _, err := s.indexer(name); err != nil {
		return nil, err
	}
	return s.byIndex(name, []string{value})
}

func (s *Store) byIndex(name string, values []string) ([]any, error) {
	objs := []any{}
	err := s.read(func(_ *sourceMeta, _ sourceTx, g genTx) error {
		keys, err := g.keys(name, values)
		if err != nil {
			return err
		}
		raws := make([]layout.Raw, 0, len(keys))
		var missing error
		for _, key := range keys {
			k := index.AppendKey(nil, key)
			if r, ok := g.Items.Find(k); ok {
				raws = append(raws, r)
			} else {
				missing = fmt.Errorf("index %s: %w: it lists %q, which is missing", name, ErrDamaged, key)
			}
		}
		_, decoded, err := s.decodeListed(raws, true, name, values)
		objs = slices.DeleteFunc(decoded, func(o any) bool { return o == nil })
		return errors.Join(missing, err)
	})
	if s.note(err) != nil {
		return nil, fmt.Errorf("boltstore: %s: %w", s.source, err)
	}
	return objs, nil
}

// keys returns the keys that have one of the values, each once and sorted.
func (g genTx) keys(name string, values []string) ([]string, error) {
	b := g.Indices.Open(name)
	if b == nil {
		return []string{}, nil
	}
	found := sets.New[string]()
	for _, value := range values {
		if err := b.Keys(value, func(key string) { found.Insert(key) }); err != nil {
			return nil, fmt.Errorf("index %s: %w: %v", name, ErrDamaged, err)
		}
	}
	return sets.List(found), nil
}

// IndexKeys returns the keys that have the value under the index, sorted.
func (s *Store) IndexKeys(name, value string) ([]string, error) {
	if _, err := s.indexer(name); err != nil {
		return nil, err
	}
	var keys []string
	err := s.read(func(_ *sourceMeta, _ sourceTx, g genTx) (err error) {
		keys, err = g.keys(name, []string{value})
		return err
	})
	return keys, s.note(err)
}

// ListIndexFuncValues returns the values of the index, each once.
func (s *Store) ListIndexFuncValues(name string) []string {
	values := []string{}
	err := s.read(func(_ *sourceMeta, _ sourceTx, g genTx) error {
		b := g.Indices.Open(name)
		if b == nil {
			return nil
		}
		if err := b.Values(func(value string) { values = append(values, value) }); err != nil {
			return fmt.Errorf("index %s: %w: %v", name, ErrDamaged, err)
		}
		return nil
	})
	s.tellClosed(s.note(err)) // the interface has no error
	return values
}

// LastStoreSyncResourceVersion is the version that the store has seen last: that
// of the last change, list or bookmark of the server's, or of what the program
// itself has written since. It is no resume point; State.ResourceVersion is.
func (s *Store) LastStoreSyncResourceVersion() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.seen != nil {
		return *s.seen
	}
	return s.meta.ResourceVersion
}

// Resync does nothing.
func (s *Claimed) Resync() error { return nil }
