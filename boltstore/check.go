package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/index"
)

// Report is what Check found.
type Report struct {
	Path    string         `json:"path"`
	Bytes   int64          `json:"bytes"`
	Sources []SourceReport `json:"sources"`
	// Problems are those of the file as a whole.
	Problems []string `json:"problems,omitempty"`
}

// SourceReport is what Check found in one source.
type SourceReport struct {
	Source   Source   `json:"source"`
	Objects  uint64   `json:"objects"`
	Indices  int      `json:"indices"`
	Entries  uint64   `json:"entries"` // in the journal
	Problems []string `json:"problems,omitempty"`
}

// Sound says whether there are no problems.
func (r Report) Sound() bool {
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Sources, func(s SourceReport) bool {
		return len(s.Problems) > 0
	})
}

// Check verifies the whole file: its pages, every record, every index against
// the records, counts and digests, and the journal's blocks and order. Damage is in the
// report. The error means that the file could not be checked. Writers wait meanwhile.
func (db *DB) Check() (Report, error) {
	r := Report{Path: db.given, Bytes: db.Size(), Sources: []SourceReport{}}
	err := db.h.alone(func(tx *bolt.Tx) error {
		f, err := pages.FileOf(db.h.now.Load().f)
		if err == nil {
			err = f.Verify()
		}
		if list, ok := errors.AsType[*faults.List](err); ok {
			for _, err := range list.Unwrap() {
				r.Problems = append(r.Problems, err.Error())
			}
			if !errors.Is(list, ErrDamaged) {
				err = nil // only room is lost
			}
		}
		if err != nil {
			return err // bbolt might walk it forever
		}
		if _, err := getHeader(tx); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
		return eachSource(tx, db.h.seal, func(id string, src sourceTx) error {
			r.Sources = append(r.Sources, verifySource(id, src))
			return nil
		})
	})
	if errors.Is(err, ErrDamaged) {
		if len(r.Problems) == 0 {
			r.Problems = []string{err.Error()}
		}
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("boltstore: check %s: %w", db.given, err)
	}
	return r, err
}

// verifyAll verifies all sources, as Check does, after an unclean boot. A source that is
// degraded is listed in any case.
func verifyAll(tx *bolt.Tx, s *seal.Sealer) error {
	return eachSource(tx, s, func(id string, src sourceTx) error {
		if m, err := src.meta(); err == nil && m.Degraded != "" {
			return nil
		}
		if r := verifySource(id, src); len(r.Problems) > 0 {
			return fmt.Errorf("%w: %s: %s", ErrDamaged, r.Source, r.Problems[0])
		}
		return nil
	})
}

func eachSource(tx *bolt.Tx, s *seal.Sealer, fn func(id string, src sourceTx) error) error {
	sources := tx.Bucket(layout.BucketSources)
	if sources == nil {
		return fmt.Errorf("%w: the sources are missing", ErrDamaged)
	}
	return sources.ForEachBucket(func(k []byte) error {
		return fn(string(k), sourceIn(sources.Bucket(k), string(k), s))
	})
}

type verifier struct {
	r SourceReport
	m *sourceMeta
}

func (v *verifier) problem(format string, args ...any) {
	if len(v.r.Problems) < faults.Most {
		v.r.Problems = append(v.r.Problems, fmt.Sprintf(format, args...))
	}
}

func verifySource(id string, src sourceTx) SourceReport {
	v := &verifier{}
	m, err := src.meta()
	if err != nil {
		v.r.Source.Resource = id
		v.problem("%v", err)
		return v.r
	}
	v.m, v.r.Source = m, m.Source
	if m.Degraded != "" {
		v.problem("marked degraded: %s", m.Degraded)
	}
	g, err := src.served(m)
	if err != nil {
		v.problem("%v", err)
	}
	listed := v.items(g)
	v.indices(g, listed)
	v.notes(g)
	v.journal(src)
	v.handlers(src)
	return v.r
}

// items verifies the records. It returns, by index, the digest of the entries that the
// records require.
func (v *verifier) items(g contentsTx) map[string]digest {
	listed := map[string]digest{}
	var d digest
	var bytes uint64
	_ = g.Items.Each(func(rw layout.Raw) {
		b := rw.Open()
		key, r, err := v.m.owner().ParseRecord(rw.Key, b)
		if err != nil {
			v.problem("%v", err)
			return
		}
		d.add(format.HashRecord(key, r))
		bytes += uint64(len(b))
		for _, iv := range r.Values {
			ld := listed[iv.Name]
			for _, val := range iv.Values {
				ld.add(format.HashBytes(index.AppendEntry(nil, val, key)))
			}
			listed[iv.Name] = ld
		}
	})
	v.r.Objects = d.Count
	if d != v.m.Items {
		v.problem("the records are not those last committed: %d of %d, digest %x of %x", d.Count, v.m.Items.Count,
			d.Sum, v.m.Items.Sum)
	}
	if bytes != v.m.Bytes {
		v.problem("the records have %d bytes, not %d", bytes, v.m.Bytes)
	}
	return listed
}

func (v *verifier) indices(g contentsTx, listed map[string]digest) {
	names := maps.Clone(listed)
	for n := range v.m.Indices {
		names[n] = digest{}
	}
	buckets := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		buckets[string(layout.IndexBucket(name))] = true
		v.r.Indices++
		var d digest
		_ = g.Indices.Open(name).Each(func(val, key string, err error) {
			if err != nil {
				v.problem("index %s: %v", name, err)
				return
			}
			d.add(format.HashBytes(index.AppendEntry(nil, val, key)))
			if _, ok := g.Items.Find(index.AppendKey(nil, key)); !ok {
				v.problem("index %s: (%q, %q) has no object", name, val, key)
			}
		})
		if d != listed[name] {
			v.problem("index %s: it has %d entries and the records list %d", name, d.Count, listed[name].Count)
		}
		if d != v.m.Indices[name].Digest {
			v.problem("index %s: its entries are not those last committed", name)
		}
	}
	if g.Indices == nil {
		return
	}
	_ = g.Indices.Bucket.ForEachBucket(func(k []byte) error {
		if !buckets[string(k)] {
			name, _, _ := index.ParseKey(k)
			v.problem("index %q: nothing lists it", name)
		}
		return nil
	})
}

func (v *verifier) journal(src sourceTx) {
	var next, size uint64
	src.Journal().Each(func(k, b []byte) {
		if len(k) != 8 {
			v.problem("journal: key %x", k)
			return
		}
		seq := binary.BigEndian.Uint64(k)
		if next != 0 && seq != next {
			v.problem("journal: a block starts at %d and should at %d", seq, next)
		}
		drafts, err := src.unpackBlock(seq, b)
		if err != nil {
			v.problem("%v", err)
			return
		}
		for _, d := range drafts {
			for _, raw := range [][]byte{d.Next, d.Previous()} {
				if raw == nil {
					continue
				}
				if _, _, err := v.m.owner().ParseRecord(index.AppendKey(nil, d.Key), raw); err != nil {
					v.problem("journal at %d: %v", seq, err)
				}
			}
		}
		next = seq + uint64(len(drafts))
		size += uint64(len(b))
		v.r.Entries += uint64(len(drafts))
	})
	if next != 0 && next != v.m.Seq+1 {
		v.problem("journal: it ends before %d and should end at %d", next, v.m.Seq)
	}
	if v.m.Told > v.m.Seq {
		v.problem("told mark %d is above the last entry %d", v.m.Told, v.m.Seq)
	}
	if size != v.m.JournalBytes {
		v.problem("journal: it has %d bytes, not %d", size, v.m.JournalBytes)
	}
}

// States returns what the file says of each source, sorted by name. If an informer of this
// program keeps a source up to date, Confirmed is as new as the informer knows: the file
// notes it later. If something of a source cannot be read, Degraded has the reason. If its
// meta is damaged and it is not claimed, only its ID is known, and Resource has it.
func (db *DB) States() ([]State, error) { return db.states(true) }

// Sources is States without Handlers, of which some is in the journal. It reads little more
// than the sources' meta, for callers that ask often.
func (db *DB) Sources() ([]State, error) { return db.states(false) }

func (db *DB) states(handlers bool) ([]State, error) {
	states := []State{} // JSON has a list, also without sources
	err := db.h.view(func(tx *bolt.Tx) error {
		return eachSource(tx, db.h.seal, func(id string, src sourceTx) error {
			src.Late = db.h.late
			states = append(states, db.stateOf(id, src, handlers))
			return nil
		})
	})
	slices.SortFunc(states, func(a, b State) int {
		return bytes.Compare([]byte(a.Source.String()), []byte(b.Source.String()))
	})
	if err != nil {
		return states, fmt.Errorf("boltstore: %s: %w", db.path, err)
	}
	for i := range states {
		// outside of the transaction, since it waits for locks
		db.claims.confirmedSince(&states[i], db.opts.Clock.Now())
	}
	return states, nil
}

func (db *DB) stateOf(id string, src sourceTx, handlers bool) State {
	s := db.claims.find(id)
	var inMemory *sourceMeta
	if s != nil {
		inMemory = s.metaNow() // nil while the source is being claimed
	}
	m, err := db.parsed.meta(src)
	if err != nil {
		m = inMemory // the next commit writes it
	}
	if m == nil {
		return State{Source: Source{Resource: id}, Degraded: err.Error()}
	}
	st := m.state(db.device)
	var serr error
	if st.Scope, serr = m.scope(src.contents()); err == nil {
		err = serr
	}
	if st.Scope == "" && inMemory != nil {
		st.Scope = inMemory.Scope // the next commit writes it
	}
	st.Namespaced = st.Scope == ScopeNamespaced
	if inMemory != nil {
		st.InUse = true
		s.mu.RLock()
		st.Outdated, st.Reindexed = s.form.reason(inMemory), maps.Clone(s.builder.counted)
		s.mu.RUnlock()
		st.InMemory, st.ObjectMemory = s.memory.size()
	}
	if handlers {
		var herr error
		if st.Handlers, herr = src.handlerStates(m, db.device); err == nil {
			err = herr
		}
	}
	if err != nil {
		st.Degraded = err.Error()
	}
	return st
}
