package boltstore

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/versions"
)

// A source's first list is stored as its pages come, and meta says how far it has come. The
// next relist of the source goes on from there, in this life or another.

// PageTo is Page, and says how far the list has come with this page. If a first list
// does not end, the next relist with TakeUp goes on behind the last
// PageTo. A list of one small page is written as a whole, by Commit.
func (r *Relist) PageTo(objs []runtime.Object, at listing.Progress) error {
	r.progress.newest = at.Newest
	if !r.first {
		return r.Page(objs)
	}
	r.progress.at = &at
	return r.page(objs, &at)
}

// TakenUp says how far an earlier relist had come, if this one goes on with it. The
// pages up to there need not be read again.
func (r *Relist) TakenUp() (listing.Progress, bool) {
	if r.progress.taken == nil {
		return listing.Progress{}, false
	}
	return *r.progress.taken, true
}

// Consistent says whether all pages of a first list, over all attempts, had one version,
// according to the calls of PageTo.
func (r *Relist) Consistent() bool {
	return r.progress.at != nil && r.progress.at.Newest == r.progress.at.ResourceVersion
}

// report reports an object that cannot be stored.
func (r *Relist) report(obj runtime.Object, err error) {
	r.unstored.why = short(err)
	r.o.OnError(obj, err)
}

// takeUp goes on with an interrupted list, if it can be used.
func (r *Relist) takeUp(m *sourceMeta) {
	if useless := r.useless(m); useless != "" {
		r.s.db.log().Info("An interrupted list cannot go on; it begins again",
			"source", r.s.name.String(), "reason", useless)
		return
	}
	// Began becomes a time of this life, or the zero Unix time if that is not known.
	at := m.Progress.At
	if at.Began = r.s.db.device.since(at.Began.UnixNano(), m.Progress.BeganBy); at.Began.IsZero() {
		at.Began = time.Unix(0, 0)
	}
	if versions.Newer(m.NewestPage, at.Newest) { // of a page that was cut in the middle
		at.Newest = m.NewestPage
	}
	r.progress.taken, r.progress.at = &at, &at
	r.o.ClusterUID = cmp.Or(r.o.ClusterUID, m.Progress.ClusterUID)
	r.Objects, r.Changed = int(m.Items.Count), int(m.Items.Count)
	if m.Noted.unstored() > 0 {
		r.report(nil, fmt.Errorf("boltstore: in an earlier attempt at this list: %s", m.Noted.Why))
	}
}

// useless says why the relist cannot go on with an interrupted one, "" if it can. Clusters
// without a known UID must have the same address: another cluster may understand the
// continue token in its own way.
func (r *Relist) useless(m *sourceMeta) string {
	uid, p := r.o.ClusterUID, m.Progress
	switch known := p.ClusterUID != "" && uid != ""; {
	case r.all:
		return r.s.Outdated()
	case r.damage.known:
		return "it is damaged: " + r.damage.why
	case known && p.ClusterUID != uid:
		return "it was of another cluster"
	case !known && p.Server != r.o.Server:
		return "it was of another server"
	}
	return ""
}

// DropPartial removes what an interrupted first list has stored. No relist may be under way.
func (s Upstream) DropPartial() error {
	if s.metaNow().Contents != contentsPartial {
		return nil
	}
	err := s.noteMeta(func(src sourceTx, m *sourceMeta) error {
		m.dropPartial()
		s.indices.complete(m, s.indices.set().fns) // of no objects
		return src.DropContents()
	})
	if err != nil {
		return fmt.Errorf("boltstore: drop the interrupted list of %s: %w", s.name, err)
	}
	return nil
}
