package reflector

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// askedOver is the connection over which the server last stated its version,
// and the flow schema that it named.
func (s *ListerWatcher) askedOver() (conn, flow string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asking.told()
}

// wentBack says whether the server is not what it was when it was last asked:
// its version is behind what was accepted, or it may be another cluster's.
func (s *ListerWatcher) wentBack(ctx context.Context) (bool, error) {
	_, before := s.askedOver()
	rv, err := s.serverVersion(ctx)
	if err != nil {
		return false, err
	}
	if _, flow := s.askedOver(); flow != before {
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
	s.allowed()
	if other, err := s.otherCluster(ctx); other || err != nil {
		return ReasonCluster, err
	}
	if isBehind(rv, s.queue.Accepted()) {
		s.mu.Lock()
		s.restored = true
		s.mu.Unlock()
		return ReasonRestored, nil
	}
	if rv != "" && s.saysNothing(rv) {
		return ReasonNoVersion, nil
	}
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
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
	_, flow := s.askedOver()
	if cmp.Or(flow, s.store.State().FlowSchemaUID) == "" {
		return false
	}
	_, definition, _ := strings.Cut(s.store.ServedForm(), "/")
	return !custom(s.store.Source().Group) || definition != ""
}

// serverVersion asks for the current version by a consistent list that selects
// nothing. Where the caller's list function overrides the selector, or the
// server does not know it, one object comes with it.
func (s *ListerWatcher) serverVersion(ctx context.Context) (string, error) {
	ctx = s.noteLink(ctx)
	patience := min(s.o.QuietTimeout, askPatience)
	list, err := s.listPage(ctx, patience, metav1.ListOptions{FieldSelector: "metadata.name=none", Limit: 1})
	if apierrors.IsBadRequest(err) {
		list, err = s.listPage(ctx, patience, metav1.ListOptions{Limit: 1})
	}
	if err != nil {
		return "", fmt.Errorf("ask for the current version of %s: %w", s.store.Source(), err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("ask for the current version of %s: %w", s.store.Source(), err)
	}
	return listVersion(m), nil
}

// listVersion is a list's version. Version 0 is none: fakes say it of any list,
// and a watch from there begins anywhere. It is still where the watch is opened,
// as by client-go: some fakes know no watch without a version.
func listVersion(m metav1.ListInterface) string {
	if rv := m.GetResourceVersion(); rv != "0" {
		return rv
	}
	return ""
}

func (s *ListerWatcher) noteZero(zero bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zero = zero
}

func (s *ListerWatcher) atZero() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.zero
}

// noteLink has the requests of the context noted as those that state the
// server's version.
func (s *ListerWatcher) noteLink(ctx context.Context) context.Context {
	l := &link{dated: s.store.DB().ServerTime}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = l
	return l.trace(ctx)
}
