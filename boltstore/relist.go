package boltstore

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/versions"
)

// RelistOptions say how a relist compares the server's objects with the file's.
type RelistOptions struct {
	// NewTimeline says that the server has been restored to an earlier state. The relist
	// compares content instead of versions, and overwrites the file.
	NewTimeline bool
	// Content: the relist compares content besides versions.
	Content bool
	// Audit says that the watch may have left out changes, see [State].
	Audit bool
	// ClusterUID and Server identify the cluster that answers, "" if unknown.
	ClusterUID, Server string
	// Transform is applied to each object before it is compared and stored.
	Transform func(runtime.Object) (runtime.Object, error)
	// TakeUp goes on with an interrupted first list, see [Relist.PageTo]. It must be sound
	// and of the same Go type, transform and cluster. Otherwise, and without TakeUp, what it
	// has stored is removed. [Relist.TakenUp] says what happened.
	TakeUp bool
	// OnError is called for each object that cannot be transformed or stored, with the
	// reason. The file keeps its earlier state of the object. OnError must not be nil.
	// obj is nil for the objects of an earlier relist that this one goes on with.
	OnError func(obj runtime.Object, err error)
}

// Relist brings the file in line with a full list of the server's. Page takes the
// list's pages, in any order. Commit ends it, with the list's resourceVersion. Only
// differences are written and journaled. An object that no page has shown is deleted.
//
// Up to maxCommitBytes of differences are kept in memory and committed in one
// transaction. More are committed as they come, deletes last. Readers may then see some
// objects as of the list and others of before, but none that steps back within a timeline.
// A source's first list is not journaled, and hidden until it ends; so are objects of
// another Go type or transform. Besides the differences a relist needs some 20 bytes of
// memory for each object.
//
// While a relist is under way, the source's producer hands over nothing. What a relist that
// does not end has committed stays, under the old resourceVersion.
type Relist struct {
	s      *source
	o      RelistOptions
	first  bool // no list of the source has ended
	all    bool // store every object again: type or transform have changed
	damage knownDamage
	// content: equal versions need not mean equal content, so that is compared.
	// BeginRelist says when.
	content bool

	epoch   uint64    // of the contents when the relist began
	indices *indexSet // when it began

	seen  seenKeys
	found differences
	last  *work // the last batch; nil until Commit has found all differences

	sweeper  sweeper
	progress pagesRead
	unstored unstored

	// Ended, if not nil, changes the facts in the commit that ends the list. It may be called
	// more than once, in one goroutine at a time.
	Ended func(*listing.Facts)

	// Unversioned: an object has no version.
	Unversioned bool
	// Objects counts the objects that the list has shown, Changed those that differ, and
	// Deleted those that are gone. The caller may report them.
	Objects, Changed, Deleted int
}

// pagesRead is how far a list has come.
type pagesRead struct {
	at     *listing.Progress // of a first list
	taken  *listing.Progress // of the earlier relist that this one goes on with
	newest string            // version of the last page, see NewestPage
}

// unstored is about objects that could not be stored.
type unstored struct {
	why      string // of the last one
	before   uint64 // those without known keys that earlier lists have counted
	nameless uint64 // those whose keys are not known and that no commit has counted
}

// listedItem is one key of a relist.
type listedItem struct {
	k     []byte
	key   string
	c     *Change // nil: the record stays as it is
	err   error   // why it cannot be stored
	again bool    // an earlier page has shown it, too
	noted bool    // the file has a note that it is unstored
	size  int     // of the record in the file
	uid   string  // of the object that the server showed last, set by scan
}

func (it listedItem) bytes() int { return it.c.Size() + it.size }

// unpacked is about bytes, with the change's payload before packing.
func (it listedItem) unpacked() int { return it.bytes() + max(it.c.size-len(it.c.payload), 0) }

// BeginRelist starts a relist. The caller ends it with Commit, or forgets it: what it has
// committed stays, and is repeated by the next one, or taken up.
func (s Upstream) BeginRelist(o RelistOptions) (*Relist, error) {
	if err := s.db.h.sound(s.Err() != nil); err != nil {
		return nil, fmt.Errorf("boltstore: relist of %s: %w", s.name, err)
	}
	m := s.metaNow()
	r := &Relist{s: s.source, o: o, first: m.Contents != contentsWhole, all: s.Outdated() != "",
		epoch: m.Epoch, indices: s.indices.set()}
	r.seen = seenKeys{seed: maphash.MakeSeed(), keys: map[uint64]struct{}{}}
	r.found, r.sweeper, r.damage = differences{r: r}, sweeper{r: r}, knownDamage{r: r}
	if err := s.Err(); err != nil {
		r.damage.known, r.damage.why = true, err.Error()
	}
	r.content = o.NewTimeline || o.Content || r.damage.known || m.Local
	goesOn := o.TakeUp && m.Progress != nil
	if r.damage.known || goesOn {
		lacks, err := r.damage.lacksRecords()
		if err != nil {
			return nil, err
		}
		if r.damage.lost = lacks && !r.first; lacks && !r.damage.known {
			r.damage.known, r.damage.why = true, "records are missing"
		}
	}
	if goesOn {
		r.takeUp(m)
	}
	return r, nil
}

// seenKeys are the keys that pages have shown.
type seenKeys struct {
	seed maphash.Seed
	keys map[uint64]struct{} // hashes of the item keys
	// refused has hashes of UIDs, see refuse.
	refused map[uint64]struct{}
}

func (sk *seenKeys) hash(k []byte) uint64 { return maphash.Bytes(sk.seed, k) }

func (sk *seenKeys) add(k []byte) { sk.keys[sk.hash(k)] = struct{}{} }

func (sk *seenKeys) has(k []byte) bool {
	_, ok := sk.keys[sk.hash(k)]
	return ok
}

// Page takes a page of objects. After an error the relist is of no more use.
func (r *Relist) Page(objs []runtime.Object) error { return r.page(objs, nil) }

// page is Page. With it the list has come to at; nil means that this is not to be noted.
func (r *Relist) page(objs []runtime.Object, at *listing.Progress) error {
	items := r.identify(objs)
	if err := r.compare(items); err != nil {
		return err
	}
	if err := r.damage.err(); err != nil {
		return fmt.Errorf("boltstore: relist of %s: %w", r.s.name, err)
	}
	r.encode(items)
	had := r.s.metaNow().ResourceVersion
	for _, it := range items {
		r.seen.add(it.k)
		if it.c != nil && !it.c.quiet && it.c.unstored == "" {
			r.Changed++
			if !versions.Newer(it.c.rv, had) {
				r.found.missed++
			}
		}
	}
	return r.found.take(items, at)
}

// identify transforms the objects and finds their keys. The items are in the file's
// order. If a key comes twice, the last object counts.
func (r *Relist) identify(objs []runtime.Object) []listedItem {
	at := map[string]int{}
	var items []listedItem
	for _, obj := range objs {
		r.s.coder.showsKind(obj)
		c, err := r.s.writer.identify(cache.Replaced, obj)
		if err != nil {
			if c = r.s.writer.unstored(obj, err); c.nameless {
				r.unstored.nameless++
				r.report(obj, err)
				r.seen.refuse(obj, err)
				continue
			}
			c.obj = obj
		}
		r.Objects++
		r.Unversioned = r.Unversioned || c.rv == ""
		it := listedItem{c: c, err: err}
		if r.o.Transform != nil && err == nil {
			if c, it.err = r.transform(obj); it.err == nil {
				it.c = c // the transform may have changed the key
			}
		}
		r.seen.refuse(obj, it.err)
		it.k, it.key = index.AppendKey(nil, it.c.key), it.c.key
		if i, twice := at[string(it.k)]; twice {
			items[i] = it
			continue
		}
		at[string(it.k)] = len(items)
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b listedItem) int { return bytes.Compare(a.k, b.k) })
	return items
}

func (r *Relist) transform(obj runtime.Object) (*Change, error) {
	t, err := r.o.Transform(obj)
	if err != nil {
		return nil, err
	}
	return r.s.writer.identify(cache.Replaced, t)
}

// encode makes the changes ready to be stored, outside any transaction. An object that
// cannot be stored becomes a note beside its record. If type or transform have changed,
// the record is hidden, since it must not be served.
func (r *Relist) encode(items []listedItem) {
	var changes []*Change
	for i := range items {
		it := &items[i]
		if it.c != nil && it.err == nil && it.c.payload == nil {
			it.err = r.s.writer.encode(it.c)
		}
		if it.err != nil {
			obj, _ := it.c.obj.(runtime.Object)
			r.report(obj, it.err)
			it.c = it.c.unstoredFor(it.err)
			it.c.hide = r.all
		} else if it.c != nil {
			changes = append(changes, it.c)
		}
	}
	onCores(len(changes), 16, func(i int) { r.s.coder.pack(changes[i]) })
}

// differences are those that the pages have shown and that are not committed yet.
type differences struct {
	r       *Relist
	items   []listedItem
	bytes   int  // of items
	spilled bool // some are committed, the others follow as they come
	began   bool // something is committed
	missed  int  // the changed objects whose version is no later than the file's
}

// keepDecoded is the size of differences, in bytes, up to which their decoded objects
// stay in memory. Handlers decode the rest again.
const keepDecoded = 512 << 10

// take keeps differences in memory. It commits them if they are too many, and with each
// page of a first list but the last.
func (d *differences) take(items []listedItem, at *listing.Progress) error {
	for _, it := range items {
		if it.c == nil {
			continue
		}
		if d.spilled || d.bytes > keepDecoded {
			it.c.obj = nil
		}
		d.items = append(d.items, it)
		d.bytes += it.bytes()
	}
	switch {
	case at != nil && at.Continue != "":
		return d.flush(at)
	case d.spilled || d.bytes > d.r.s.db.opts.maxCommitBytes:
		return d.flush(nil)
	}
	return nil
}

// Compared reports whether the list compares each object's content with the file's, or
// stores every object. Otherwise an object of the same version counts as unchanged.
func (r *Relist) Compared() bool { return r.first || r.all || r.content }

// NewestPage states the version of the last page, before the page or Commit. It may be later
// than the list's, which is the first page's. PageTo states it, too.
func (r *Relist) NewestPage(rv string) { r.progress.newest = rv }

// end changes the facts as Ended says.
func (r *Relist) end(f *listing.Facts) {
	if r.Ended != nil {
		r.Ended(f)
	}
}

// First reports whether this is the source's first list. A first list is not journaled.
func (r *Relist) First() bool { return r.first }

func (f *form) transformVersion() string {
	f.s.mu.RLock()
	defer f.s.mu.RUnlock()
	return f.transform
}
