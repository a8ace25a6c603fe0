package reflector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/versions"
)

// wentBack asks the server again, and says whether it is no longer the same: its version
// is behind the accepted one, or it may be of another cluster.
func (s *Reflector) wentBack(ctx context.Context) (bool, error) {
	rv, err := s.serverVersion(ctx)
	if err != nil {
		return false, err
	}
	if s.cluster.server != "" {
		told, err := s.requests.clusterUID(ctx, time.Now())
		if err != nil {
			return false, err
		}
		if uid := s.cluster.is().ClusterUID; uid != "" && told.uid != "" && told.uid != uid {
			return true, nil
		}
	}
	return versions.Newer(s.newest(), rv), nil
}

// ask asks for the server's version and for its cluster, once after the link has broken.
// It returns the reason for a relist, if there must be one, or a list that may confirm beside
// the watch.
func (s *Reflector) ask(ctx context.Context) (reason string, listed *page, err error) {
	began, slept := s.clock.Now(), s.store.Upstream.Sleeping()
	s.proving.compare(false)
	rv, listed, err := s.question(ctx)
	if err != nil {
		return "", nil, s.fail(ctx, err)
	}
	began = began.Add(-slept()) // if the machine has slept since
	s.link.answers()
	if other, err := s.otherCluster(ctx); other || err != nil {
		return ReasonCluster, nil, err
	}
	if versions.Newer(s.newest(), rv) {
		s.restored()
		return ReasonRestored, nil, nil
	}
	compared, equal, err := s.compareAnswer(ctx, listed)
	switch {
	case err != nil:
		return "", nil, err
	case rv != "" && s.saysNothing(rv, equal):
		return ReasonNoVersion, nil, nil
	case equal:
		s.compared()
	case compared:
		s.disproved(rv)
		return ReasonDiffers, nil, nil
	}
	s.link.stated()
	if rv == "" {
		return "", nil, nil
	}
	if s.queue.Confirm(rv, began); s.queue.Reached() {
		s.proving.reached()
		return "", nil, nil
	}
	s.proving.compare(listed != nil)
	return "", listed, nil
}

// question asks for the server's version. A list of few objects answers it if such a list
// may confirm, or if callers wait for more than the version.
func (s *Reflector) question(ctx context.Context) (rv string, listed *page, err error) {
	if listed, err = s.askByList(ctx); err != nil {
		return "", nil, err
	}
	if listed == nil {
		if rv, err = s.serverVersion(ctx); err != nil || !versions.Newer(rv, s.queue.AcceptedVersion()) {
			return rv, nil, err
		}
		if listed = s.askForWaiting(ctx, rv); listed == nil {
			return rv, nil, nil
		}
	}
	return listed.about.ResourceVersion, listed, nil
}

// newest is the newest version that the server has shown: the queue's, or that of the last
// relist's last page. The server must not be behind it.
func (s *Reflector) newest() string {
	return later(s.queue.ShownVersion(), s.store.State().NewestPage)
}

// restored notes that the server is of another timeline. The next life must know it,
// too: by then the server may have overtaken the file's version.
func (s *Reflector) restored() {
	s.link.restored()
	err := s.store.Upstream.DropPartial() // what it has was never shown
	if err == nil && s.hasContents() {
		err = s.store.Upstream.WriteFacts(func(f *listing.Facts) { f.Restored = true })
	}
	if err != nil {
		s.log.V(1).Info("It could not be noted that the server was restored", "source", s.store.Source().String(),
			"err", err)
		return
	}
	s.link.restoreNoted()
}

// saysNothing says whether changes may have been missed whatever version the server
// states. That is so if versions do not move with each change. It is also so if the
// server states the file's own version and nothing shows that versions move. Then a list
// that equals the file shows as much as a relist, if that compares versions, too.
func (s *Reflector) saysNothing(rv string, equal bool) bool {
	f := s.store.Upstream.Facts()
	if f.Stands {
		return true
	}
	return rv == s.queue.AcceptedVersion() && !f.Moves(rv) && !s.etcds() && !(equal && f.ServedForm != "")
}

// etcds says whether the versions are known to be etcd's. They are if the server has a
// kube-system, and the group is Kubernetes' own.
func (s *Reflector) etcds() bool {
	return s.store.State().ClusterUID != "" && !custom(s.store.Source().Group)
}

// serverVersion asks for the server's current version, and notes which server answers. It
// fails if the answer has none and the last list had one.
func (s *Reflector) serverVersion(ctx context.Context) (string, error) {
	rv, err := s.requests.version(s.cluster.trace(ctx))
	if err == nil && rv == "" && s.store.Upstream.Facts().Listed != "" {
		err = fmt.Errorf("%w: it has no resourceVersion, and the last one had", errNoList)
	}
	return rv, err
}

// later is the later one of two versions, a if they cannot be compared.
func later(a, b string) string {
	if versions.Newer(b, a) {
		return b
	}
	return a
}

// ordered says whether the server's versions can be compared. Otherwise only exactly the
// stated version confirms, and it may never come.
func ordered(q *fifo.Queue) bool {
	rv := q.AcceptedVersion()
	_, err := resourceversion.CompareResourceVersion(rv, rv)
	return err == nil
}
