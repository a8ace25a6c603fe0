package reflector

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/fifo"
)

// wentBack says whether the server is not what it was when it was last asked:
// its version is behind what was accepted, or it may be another cluster's.
func (s *ListerWatcher) wentBack(ctx context.Context) (bool, error) {
	_, before := s.cluster.told()
	rv, err := s.serverVersion(ctx)
	if err != nil {
		return false, err
	}
	if _, flow := s.cluster.told(); flow != before {
		return true, nil
	}
	return isBehind(rv, s.queue.Accepted()), nil
}

// ask learns the server's current version, once after the link was broken, and
// whether it is still the same cluster's. If it is behind the file's the server
// has been restored.
func (s *ListerWatcher) ask(ctx context.Context) (string, error) {
	began, slept := s.o.Clock.Now(), s.store.DB().Slept()
	rv, err := s.serverVersion(ctx)
	if err != nil {
		return "", s.fail(ctx, err)
	}
	began = began.Add(slept - s.store.DB().Slept()) // should the machine have slept meanwhile
	s.link.answers()
	if other, err := s.otherCluster(ctx); other || err != nil {
		return ReasonCluster, err
	}
	if isBehind(rv, s.queue.Accepted()) {
		s.link.restored()
		return ReasonRestored, nil
	}
	if rv != "" && s.saysNothing(rv) {
		return ReasonNoVersion, nil
	}
	s.link.asked()
	if rv != "" {
		s.queue.Confirm(rv, began)
	}
	return "", nil
}

// saysNothing says whether changes may have been missed although the server
// states the file's own version, since nothing shows that its versions move, or
// whatever it states, since they do not move with each change.
func (s *ListerWatcher) saysNothing(rv string) bool {
	if s.store.Stands() {
		return true
	}
	return rv == s.queue.Accepted() && !s.store.Moves(rv) && !s.etcds()
}

// etcds says whether the versions are known to be etcd's, where the server names a
// flow schema, or has: those of groups of Kubernetes itself, and of custom
// resources whose definition the server has shown.
func (s *ListerWatcher) etcds() bool {
	_, flow := s.cluster.told()
	if cmp.Or(flow, s.store.State().FlowSchemaUID) == "" {
		return false
	}
	_, definition, _ := strings.Cut(s.store.ServedForm(), "/")
	return !custom(s.store.Source().Group) || definition != ""
}

// serverVersion asks for the server's current version, and notes who answers.
func (s *ListerWatcher) serverVersion(ctx context.Context) (string, error) {
	return s.requests.version(s.cluster.trace(ctx))
}

// otherCluster finds out whether the server is that of another cluster than the
// file's. If it is, the file's contents are set aside.
func (s *ListerWatcher) otherCluster(ctx context.Context) (bool, error) {
	if !s.cluster.due() {
		return false, nil
	}
	known := s.store.State()
	id, by, err := s.cluster.identify(ctx, known, s.cluster.by())
	if err != nil {
		return false, s.fail(ctx, err)
	}
	return s.cluster.believe(ctx, known, id, by)
}

// isBehind says whether version a is known to be before b.
func isBehind(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// later is the later one of two versions, a if they cannot be compared.
func later(a, b string) string {
	if isBehind(a, b) {
		return b
	}
	return a
}

// ordered says whether the server's versions can be compared. Otherwise only
// the very one that it has stated confirms, which may never come.
func ordered(q *fifo.Queue) bool {
	rv := q.Accepted()
	_, err := resourceversion.CompareResourceVersion(rv, rv)
	return err == nil
}
