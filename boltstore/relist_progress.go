package boltstore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/listing"
)

// A source's first list is staged, and its stage outlives the relist. The staged
// generation has the pages read so far. Its bucket also has the list's progress, which is
// written in the transactions that store the pages. The next relist of the source goes on
// from there, in this life or another. Until a relist commits, meta does not know the
// stage, and nobody reads it.

// keyProgress is the key of the progress in a staged generation's bucket.
var keyProgress = []byte("progress")

// stagedList is the file's note of a first list that has not ended. It says how far the list
// has come, in which form its records are, and what meta would say about them.
type stagedList struct {
	At         listing.Progress     `msgpack:"at"`
	BeganBy    *stamp               `msgpack:"beganBy,omitempty"`
	TypeHash   string               `msgpack:"typeHash"`
	Transform  string               `msgpack:"transform"`
	Codec      byte                 `msgpack:"codec"`
	ClusterUID string               `msgpack:"clusterUID"`
	Server     string               `msgpack:"server"`
	Unstored   string               `msgpack:"unstored"` // why an object could not be stored, "": all could
	Items      digest               `msgpack:"items"`
	Bytes      uint64               `msgpack:"bytes"`
	Indices    map[string]indexMeta `msgpack:"indices"`
	Noted      noted                `msgpack:"noted,omitempty"`
}

// firstGen is the generation of a first list.
const firstGen = 1

// staged returns the bucket and the generation of an interrupted first list, nil if
// there is none.
func (t sourceTx) staged(m *sourceMeta) (*bolt.Bucket, uint64) {
	gens := t.Root.Bucket(layout.BucketGen)
	if gens == nil || m.Generation > 0 {
		return nil, 0
	}
	if b := gens.Bucket(layout.U64(firstGen)); b != nil && b.Get(keyProgress) != nil {
		return b, firstGen
	}
	return nil, 0
}

// keepGens returns the generations that a claim keeps.
func (t sourceTx) keepGens(m *sourceMeta) []uint64 {
	keep := []uint64{m.Generation}
	if b, n := t.staged(m); b != nil {
		keep = append(keep, n)
	}
	return keep
}

// progress returns the progress of an interrupted first list, nil if there is none.
func (t sourceTx) progress(m *sourceMeta) (*stagedList, error) {
	b, _ := t.staged(m)
	if b == nil {
		return nil, nil
	}
	raw, err := t.Seal.OpenValue(b.Get(keyProgress), layout.ProgressPlace(t.ID))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, layout.ErrUnopened)
	}
	p := &stagedList{}
	return p, format.Decode(raw, p)
}

func (t sourceTx) putProgress(gen uint64, p stagedList) error {
	data, err := format.Encode(keyProgress, p)
	if err != nil {
		return err
	}
	if data, err = t.Seal.Value(data, layout.ProgressPlace(t.ID)); err != nil {
		return err
	}
	return t.Root.Bucket(layout.BucketGen).Bucket(layout.U64(gen)).Put(keyProgress, data)
}

// dropProgress removes the progress from a generation that becomes the served one.
func (t sourceTx) dropProgress(gen uint64) error {
	return t.Root.Bucket(layout.BucketGen).Bucket(layout.U64(gen)).Delete(keyProgress)
}

// PageTo is Page, and says how far the list has come with this page. If a first list
// ends in Abort, or with the process, its pages up to the last PageTo stay for the next
// relist with TakeUp. A list of one small page is written as a whole, by Commit. Other
// lists leave nothing: their unchanged objects are in the file anyway.
func (r *Relist) PageTo(objs []runtime.Object, at listing.Progress) error {
	if r.first {
		r.stage.next = &at
		defer func() { r.stage.next = nil }()
	}
	return r.Page(objs)
}

// TakenUp says how far an earlier relist had come, if this one goes on with it. The
// pages up to there need not be read again.
func (r *Relist) TakenUp() (listing.Progress, bool) {
	if r.taken == nil {
		return listing.Progress{}, false
	}
	return *r.taken, true
}

// Consistent says whether all pages of a first list, over all attempts, had one version,
// according to the calls of PageTo.
func (r *Relist) Consistent() bool {
	if r.stage == nil || r.stage.at == nil {
		return false
	}
	return r.stage.at.Newest == r.stage.at.ResourceVersion
}

// noteProgress writes how far the list has come, in the transaction that stages its
// pages.
func (r *Relist) noteProgress(src sourceTx, m *sourceMeta, at *listing.Progress) error {
	if at == nil {
		return nil
	}
	d, kept := r.s.db.device, *at
	wall, by := d.at(at.Began)
	kept.Began = time.Unix(0, wall)
	known := m.Noted
	if r.nameless > 0 {
		known.Nameless, known.Why = known.Nameless+r.nameless, r.unstored
	}
	return src.putProgress(m.Generation, stagedList{At: kept, BeganBy: by, TypeHash: r.s.typeHash, Transform: r.s.transformVersion(), Codec: r.s.codec.ID(),
		ClusterUID: r.o.ClusterUID, Server: r.o.Server, Unstored: r.unstored,
		Items: m.Items, Bytes: m.Bytes, Indices: m.Indices, Noted: known})
}

// report reports an object that cannot be stored.
func (r *Relist) report(obj runtime.Object, err error) {
	r.unstored = short(err)
	r.o.OnError(obj, err)
}

// takeUp goes on with the stage of an earlier relist, if there is a sound one.
func (r *Relist) takeUp() error {
	m := r.s.metaNow().clone()
	var p *stagedList
	useless := ""
	err := r.s.view(func(now *sourceMeta, src sourceTx) (err error) {
		if p, err = src.progress(now); err != nil {
			useless, p = err.Error(), nil
			return nil
		}
		if p == nil {
			return nil
		}
		if useless = p.useless(r); useless == "" {
			_, m.Generation = src.staged(now)
			m.Items, m.Bytes, m.Noted = p.Items, p.Bytes, p.Noted
			p.indices(m)
			v := &verifier{m: m}
			g := src.gen(m.Generation)
			v.indices(g, v.items(g))
			v.notes(g)
			if len(v.r.Problems) > 0 {
				useless = v.r.Problems[0]
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("boltstore: relist of %s: %w", r.s.source, err)
	}
	if useless != "" {
		r.s.db.log().Info("The pages of an interrupted list cannot be used; the list begins again", "source", r.s.source.String(), "reason", useless)
	}
	if p == nil || useless != "" {
		return nil
	}
	// Began becomes a time of this life, or the zero Unix time if that is not known.
	if p.At.Began = r.s.db.device.since(p.At.Began.UnixNano(), p.BeganBy); p.At.Began.IsZero() {
		p.At.Began = time.Unix(0, 0)
	}
	r.taken = &p.At
	r.stage = &stage{meta: m, set: r.s.stagedSet(m), journalBytes: m.JournalBytes, at: &p.At, begun: true}
	r.o.ClusterUID = cmp.Or(r.o.ClusterUID, p.ClusterUID)
	r.Objects, r.Changed = int(m.Items.Count), int(m.Items.Count)
	if p.Unstored != "" {
		r.report(nil, fmt.Errorf("boltstore: in an earlier attempt at this list: %s", p.Unstored))
	}
	return nil
}

// useless says why the relist cannot go on with this progress, "" if it can. Clusters
// without a known UID must have the same address: another cluster may understand the
// continue token in its own way.
func (p *stagedList) useless(r *Relist) string {
	uid := r.o.ClusterUID
	switch known := p.ClusterUID != "" && uid != ""; {
	case p.TypeHash != r.s.typeHash:
		return OutdatedType
	case p.Transform != r.s.transformVersion():
		return OutdatedTransform
	case p.Codec != r.s.codec.ID():
		return "the codec is another one"
	case known && p.ClusterUID != uid:
		return "it was of another cluster"
	case !known && p.Server != r.o.Server:
		return "it was of another server"
	}
	return ""
}

// indices sets m's indices as the progress has them.
func (p *stagedList) indices(m *sourceMeta) {
	for name, im := range m.Indices { // an empty source has complete indices
		m.Indices[name] = indexMeta{Version: im.Version}
	}
	maps.Copy(m.Indices, p.Indices)
}

// stagedSet returns the present indices if every staged record has its values for them.
// Otherwise it marks the incomplete ones in m and returns an empty set. The relist's
// commit then brings the indices up to date.
func (s *Store) stagedSet(m *sourceMeta) *indexSet {
	set := s.indexing().indexSet()
	whole := true
	for name, fn := range set.fns {
		if im := m.Indices[name]; !im.Complete || im.Version != s.indexing().indexVersion(name, fn) {
			m.doubtIndex(name)
			whole = false
		}
	}
	if !whole {
		return &indexSet{}
	}
	return set
}

// DropProgress removes the pages and the progress of an interrupted first list. No relist
// may be under way.
func (s *Claimed) DropProgress() error {
	err := s.db.h.view(func(tx *bolt.Tx) error {
		if src, ok := s.db.h.source(tx, s.id); ok {
			if b, _ := src.staged(s.metaNow()); b != nil {
				return nil
			}
		}
		return errNothing
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if err == nil {
		err = s.noteMeta(func(src sourceTx, m *sourceMeta) error { return src.DropGensExcept(m.Generation) })
	}
	if err != nil {
		return fmt.Errorf("boltstore: drop the interrupted list of %s: %w", s.source, err)
	}
	return nil
}

var errNothing = errors.New("nothing is there")
