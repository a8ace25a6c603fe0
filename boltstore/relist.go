package boltstore

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/kubewake/kubewake/index"
	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// RelistOptions say how a relist compares the server's objects with the file's.
type RelistOptions struct {
	// NewHistory: the server has been restored to an earlier state. Content is
	// compared instead of versions, and the file's is overwritten.
	NewHistory bool
	// ClusterUID and Server identify who answered, "" leaves what is known.
	ClusterUID, Server string
	// Transform is applied to each object before it is compared and stored.
	Transform func(runtime.Object) (runtime.Object, error)
	// OnError is told of each object that cannot be transformed or stored, and why. What
	// the file has of it stays. It must not be nil.
	OnError func(obj runtime.Object, err error)
}

// Relist brings the file in line with a full list of the server's: the pages,
// in key order, go to Page, and Commit makes the result visible at once, with
// the list's resourceVersion. Only what differs is written and journaled. Up
// to MaxCommitBytes of differences are kept in memory and committed in one
// transaction; more are staged in a new generation that the last transaction
// switches to. The first list of a source is always staged, and not journaled.
//
// While a relist is under way the source must not be changed otherwise. A
// crash leaves the file as it was before.
type Relist struct {
	s     *Store
	o     RelistOptions
	first bool // nothing was there before
	all   bool // store every object anew: type or transform have changed

	prev    []byte // item key up to which the list has come
	changes []*Change
	bytes   int
	staged  *sourceMeta // meta of the generation being built, nil while in memory
	// journalBytes is what the journal had when staging began.
	journalBytes uint64
	tailed       bool // what the file has behind the last page has been merged
	done         bool

	// Result, for the caller to report.
	Objects, Changed, Deleted int
}

// BeginRelist starts a relist. End it with Commit or Abort.
func (s *Store) BeginRelist(o RelistOptions) (*Relist, error) {
	m := s.metaNow()
	r := &Relist{s: s, o: o, first: m.Generation == 0, all: s.Outdated() != ""}
	if r.first || s.Err() != nil {
		return r, r.stage(nil)
	}
	return r, nil
}

// Page takes a page of objects. ErrUnordered means that they do not follow the
// pages before; the relist must be aborted, and begun anew with all objects in
// one page.
func (r *Relist) Page(objs []runtime.Object) error {
	page := make([]pageItem, 0, len(objs))
	for _, obj := range objs {
		c, err := r.s.identify(cache.Replaced, obj)
		if err != nil {
			r.o.OnError(obj, err)
			continue
		}
		it := pageItem{k: index.AppendKey(nil, c.key), c: c}
		if r.o.Transform != nil {
			if it.c, err = r.transform(obj); err != nil {
				r.o.OnError(obj, err)
				it.c, it.failed = c, true
			}
		}
		page = append(page, it)
	}
	slices.SortStableFunc(page, func(a, b pageItem) int { return bytes.Compare(a.k, b.k) })
	if len(page) == 0 {
		return nil
	}
	if r.prev != nil && bytes.Compare(page[0].k, r.prev) <= 0 {
		return fmt.Errorf("boltstore: relist of %s: %w", r.s.source, ErrUnordered)
	}
	r.Objects += len(page)
	return r.merge(page, page[len(page)-1].k)
}

type pageItem struct {
	k      []byte
	c      *Change
	failed bool // it is there, and cannot be stored
}

func (r *Relist) transform(obj runtime.Object) (*Change, error) {
	t, err := r.o.Transform(obj)
	if err != nil {
		return nil, err
	}
	return r.s.identify(cache.Replaced, t)
}

// merge compares the page with what the file has behind r.prev, up to and
// including upto (nil: to the end), and keeps or stages the differences.
func (r *Relist) merge(page []pageItem, upto []byte) error {
	changes, err := r.diff(page, upto)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.typ == cache.Deleted {
			r.Deleted++
		} else {
			r.Changed++
		}
	}
	from := r.prev
	if r.staged != nil {
		if err := r.stageRange(from, upto, changes); err != nil {
			return err
		}
		r.prev = upto
		return nil
	}
	r.prev = upto
	r.changes = append(r.changes, changes...)
	for _, c := range changes {
		r.bytes += c.Size()
	}
	if r.bytes > r.s.db.opts.MaxCommitBytes {
		staged := r.changes
		r.changes = nil
		return r.stage(func() error { return r.stageRange(nil, upto, staged) })
	}
	return nil
}

// diff finds what the page changes. Encoding, indexing and the like happen
// outside the transaction.
func (r *Relist) diff(page []pageItem, upto []byte) ([]*Change, error) {
	var changes []*Change
	maybe := map[*Change]*record{} // of the same version: compare the content
	gone, same := []string{}, map[*Change]bool{}
	err := r.s.db.h.view(func(tx *bolt.Tx) error {
		clear(maybe)
		clear(same)
		gone = gone[:0]
		g, err := r.current(tx)
		if err != nil || g.items == nil {
			return err
		}
		byKey := map[string]*Change{}
		for _, it := range page {
			byKey[string(it.k)] = it.c
		}
		c := g.items.Cursor()
		for k, v := seekAfter(c, r.prev); k != nil && (upto == nil || bytes.Compare(k, upto) <= 0); k, v = c.Next() {
			n := byKey[string(k)]
			key, old, err := parseRecord(k, v)
			switch {
			case err != nil:
				if n == nil {
					gone = append(gone, key)
				}
			case n == nil:
				gone = append(gone, key)
			case r.o.NewHistory || r.all || n.rv == "":
				old.payload = bytes.Clone(old.payload)
				maybe[n] = old
			case n.uid == old.uid && n.rv == old.rv:
				same[n] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Deletes first: a key under another UID is handled where it is applied.
	for _, key := range gone {
		changes = append(changes, &Change{typ: cache.Deleted, key: key})
	}
	for _, it := range page {
		if same[it.c] || it.failed {
			continue
		}
		if err := r.s.encode(it.c); err != nil {
			r.o.OnError(it.c.obj.(runtime.Object), err)
			continue
		}
		if old := maybe[it.c]; old != nil && equal(it.c, old, r.s.codec.ID()) {
			continue
		}
		changes = append(changes, it.c)
	}
	return changes, nil
}

func equal(c *Change, old *record, codec byte) bool {
	return c.rv == old.rv && c.uid == old.uid && codec == old.codec && bytes.Equal(c.payload, old.payload) &&
		slices.EqualFunc(c.values, old.values, func(a, b indexValues) bool {
			return a.name == b.name && slices.Equal(a.values, b.values)
		})
}

// current is the generation to compare with, served or not.
func (r *Relist) current(tx *bolt.Tx) (genTx, error) {
	src, ok := openSource(tx, r.s.id)
	if !ok {
		return genTx{}, fmt.Errorf("%w: %s", ErrNoSource, r.s.source)
	}
	return src.gen(r.s.metaNow().Generation), nil
}

func seekAfter(c *bolt.Cursor, prev []byte) ([]byte, []byte) {
	if prev == nil {
		return c.First()
	}
	k, v := c.Seek(prev)
	if bytes.Equal(k, prev) {
		return c.Next()
	}
	return k, v
}

// stage turns to building a new generation; fill brings in what was kept in
// memory so far.
func (r *Relist) stage(fill func() error) error {
	m := r.s.metaNow().clone()
	m.Generation++
	m.Items, m.Bytes, m.Degraded = digest{}, 0, ""
	for name, im := range m.Indices {
		im.Digest = digest{}
		m.Indices[name] = im
	}
	r.staged, r.journalBytes = m, m.JournalBytes
	err := r.s.db.h.update(func(tx *bolt.Tx) error {
		src, ok := openSource(tx, r.s.id)
		if !ok {
			return fmt.Errorf("%w: %s", ErrNoSource, r.s.source)
		}
		if err := src.dropGensExcept(r.s.metaNow().Generation); err != nil {
			return err
		}
		if err := src.dropJournalAbove(m.Seq); err != nil {
			return err
		}
		_, err := src.createGen(m.Generation)
		return err
	}, nil)
	if err != nil || fill == nil {
		return err
	}
	return fill()
}

// stageRange brings the new generation up to upto: records that do not change
// are copied as they are.
func (r *Relist) stageRange(from, upto []byte, changes []*Change) error {
	for {
		var next []byte
		rest := changes
		m := r.staged.clone()
		err := r.s.db.h.update(func(tx *bolt.Tx) error {
			m = r.staged.clone()
			src, ok := openSource(tx, r.s.id)
			if !ok {
				return fmt.Errorf("%w: %s", ErrNoSource, r.s.source)
			}
			a := &applier{s: r.s, src: src, m: m, now: r.s.db.opts.Clock.Now().UnixNano(), overwrite: true, unseen: r.first, spill: true,
				from: src.gen(r.s.metaNow().Generation), to: src.gen(m.Generation)}
			var err error
			if next, rest, err = r.stageSome(a, from, upto, changes); err != nil {
				return err
			}
			return a.journal()
		}, nil)
		if err != nil {
			return fmt.Errorf("boltstore: relist of %s: %w", r.s.source, err)
		}
		r.staged = m
		if next == nil {
			return nil
		}
		from, changes = next, rest
	}
}

// stageSome does as much of the range as fits a transaction. It returns the
// item key it came to, nil at the end, and the changes that are left.
func (r *Relist) stageSome(a *applier, from, upto []byte, changes []*Change) ([]byte, []*Change, error) {
	room := r.s.db.opts.MaxCommitBytes
	sorted := slices.Clone(changes)
	slices.SortStableFunc(sorted, func(x, y *Change) int {
		return bytes.Compare(index.AppendKey(nil, x.key), index.AppendKey(nil, y.key))
	})
	var c *bolt.Cursor
	var k, v []byte
	if a.from.items != nil {
		c = a.from.items.Cursor()
		k, v = seekAfter(c, from)
		if upto != nil && k != nil && bytes.Compare(k, upto) > 0 {
			k = nil
		}
	}
	step := func() {
		if k, v = c.Next(); k != nil && upto != nil && bytes.Compare(k, upto) > 0 {
			k = nil
		}
	}
	var last []byte
	for len(sorted) > 0 || k != nil {
		if room <= 0 {
			return last, sorted, nil
		}
		var ck []byte
		if len(sorted) > 0 {
			ck = index.AppendKey(nil, sorted[0].key)
		}
		if ck != nil && (k == nil || bytes.Compare(ck, k) <= 0) {
			room -= sorted[0].Size()
			if err := a.apply(sorted[0]); err != nil {
				return nil, nil, err
			}
			if bytes.Equal(ck, k) {
				step()
			}
			last, sorted = ck, sorted[1:]
			continue
		}
		room -= len(v)
		last = bytes.Clone(k)
		key, old, err := parseRecord(k, v)
		if err != nil {
			step() // diff has made a change of what its key could be read of
			continue
		}
		if err := a.give(key, old, bytes.Clone(v), nil); err != nil {
			return nil, nil, err
		}
		step()
	}
	return nil, nil, nil
}

// Commit makes the list visible, as of resourceVersion, which the server has
// confirmed at the given time. The entries are what handlers are to be told,
// in order; nil if there are too many to be kept in memory, then they are in
// the journal, from the seq before on. told of it, readers see all or nothing.
func (r *Relist) Commit(resourceVersion string, confirmed time.Time) ([]*Entry, error) {
	if !r.tailed {
		if err := r.merge(nil, nil); err != nil {
			return nil, err
		}
		r.tailed = true
	}
	var entries []*Entry
	var m *sourceMeta
	err := r.s.db.h.update(func(tx *bolt.Tx) error {
		src, ok := openSource(tx, r.s.id)
		if !ok {
			return fmt.Errorf("%w: %s", ErrNoSource, r.s.source)
		}
		var err error
		if m, entries, err = r.finish(src); err != nil {
			return err
		}
		m.ResourceVersion, m.Confirmed = resourceVersion, confirmed.UnixNano()
		m.TypeHash, m.Transform = r.s.type_, r.s.transformVersion()
		m.APIVersion, m.Kind = r.s.kind.GroupVersion().String(), r.s.kind.Kind
		if r.o.NewHistory {
			m.History++
		}
		if r.o.ClusterUID != "" {
			m.ClusterUID = r.o.ClusterUID
		}
		if r.o.Server != "" {
			m.Server = r.o.Server
		}
		return src.putMeta(m)
	}, func() {
		r.done = true
		r.s.setMeta(m)
		if r.staged != nil {
			r.s.repaired()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: relist of %s: %w", r.s.source, err)
	}
	return entries, nil
}

func (r *Relist) finish(src sourceTx) (*sourceMeta, []*Entry, error) {
	if r.staged != nil {
		m, now := r.staged.clone(), r.s.metaNow()
		// Told marks go on while a relist is staged, and blocks are trimmed.
		m.Told = max(m.Told, now.Told)
		m.JournalBytes = now.JournalBytes + m.JournalBytes - r.journalBytes
		for name, fn := range r.s.GetIndexers() {
			im := m.Indices[name]
			if r.first || r.all { // every record lists its values under these
				im.Version, im.Complete = r.s.indexVersion(name, fn), true
			}
			m.Indices[name] = im
		}
		return m, nil, src.dropGensExcept(m.Generation)
	}
	m := r.s.metaNow().clone()
	g, err := src.createGen(m.Generation)
	if err != nil {
		return nil, nil, err
	}
	a := &applier{s: r.s, src: src, m: m, from: g, to: g, now: r.s.db.opts.Clock.Now().UnixNano(), overwrite: true}
	for _, c := range r.changes {
		if err := a.apply(c); err != nil {
			return nil, nil, err
		}
	}
	if r.all {
		for name, fn := range r.s.GetIndexers() {
			im := m.Indices[name]
			im.Version, im.Complete = r.s.indexVersion(name, fn), true
			m.Indices[name] = im
		}
	}
	return m, a.entries, a.journal()
}

// Anew says whether the source had nothing before, so that nothing is journaled.
func (r *Relist) Anew() bool { return r.first }

// Abort forgets the relist. What was staged is removed. It does nothing after
// Commit.
func (r *Relist) Abort() {
	if r.done || r.staged == nil {
		return
	}
	r.done = true
	err := r.s.db.h.update(func(tx *bolt.Tx) error {
		src, ok := openSource(tx, r.s.id)
		if !ok {
			return nil
		}
		m := r.s.metaNow()
		if err := src.dropGensExcept(m.Generation); err != nil {
			return err
		}
		return src.dropJournalAbove(m.Seq)
	}, nil)
	if err != nil {
		r.s.db.log().Error(err, "What an aborted relist staged was not removed, the next claim will", "source", r.s.source.String())
	}
}

func (s *Store) transformVersion() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.transform
}

// repaired forgets damage: every record has been read from the server anew.
func (s *Store) repaired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		s.broken, s.brokenCh = nil, make(chan struct{})
	}
}
