package reflector

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

func (s *Source) askedOver() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asking
}

// wentBack says whether the server's version is behind what was accepted.
func (s *Source) wentBack(ctx context.Context) (bool, error) {
	rv, err := s.serverVersion(ctx)
	if err != nil {
		return false, err
	}
	c, err := resourceversion.CompareResourceVersion(rv, s.journal.Accepted())
	return err == nil && c < 0, nil
}

// ask learns the server's current version, once after the link was broken. If
// it is behind the file's the server has been restored.
func (s *Source) ask(ctx context.Context) (string, error) {
	rv, err := s.serverVersion(ctx)
	if err != nil {
		return "", s.fail(ctx, err)
	}
	s.allowed()
	if c, err := resourceversion.CompareResourceVersion(rv, s.journal.Accepted()); err == nil && c < 0 {
		s.mu.Lock()
		s.restored = true
		s.mu.Unlock()
		return ReasonRestored, nil
	}
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	if rv != "" {
		s.journal.Confirm(rv)
	}
	return "", nil
}

// serverVersion asks for the current version by a consistent list that selects
// nothing. Where the caller's list function overrides the selector, or the
// server does not know it, one object comes with it.
func (s *Source) serverVersion(ctx context.Context) (string, error) {
	ctx, note := s.noteLink(ctx)
	defer note()
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
	return m.GetResourceVersion(), nil
}

// noteLink has the requests of the context noted as those that state the
// server's version.
func (s *Source) noteLink(ctx context.Context) (context.Context, func()) {
	l := &link{}
	return l.trace(ctx), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asking = l.String()
	}
}
