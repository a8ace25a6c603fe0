package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/versions"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// askByList asks for the server's version by a list of the metadata of all objects. The
// list then confirms beside the watch, so that HasSynced comes a round trip or two sooner.
// It is for few objects, and under the automatic choice only.
//
// The answer is nil if the version must be asked for alone. The error is the link's.
func (s *Reflector) askByList(ctx context.Context) (*page, error) {
	if !s.mayList() || !s.few(startBytes) {
		return nil, nil
	}
	s.proving.spend()
	a, err := s.listFew(s.cluster.trace(ctx), s.requests.short())
	if showsNothing(err) {
		return nil, nil
	}
	return a, err
}

// askForWaiting is askByList for callers of WaitForFresh, once the server has stated a later
// version than the file's. They then need not wait for a bookmark. It returns nil if they
// must wait for the watch, or for a list of everything.
func (s *Reflector) askForWaiting(ctx context.Context, rv string) *page {
	now := s.clock.Now()
	if !s.fresh.want() || !s.listsForWaiting() {
		return nil
	}
	if s.proving.lags(now) && (!s.link.bookmarkless() || s.listIn() <= 0) {
		return nil // a bookmark moves the resume point, or a list of everything
	}
	a, err := s.listFew(ctx, min(s.requests.short(), bookmarkAfter))
	answers := a != nil && a.about.Continue == "" &&
		(a.about.ResourceVersion == rv || versions.Newer(a.about.ResourceVersion, rv))
	if err != nil || a.took > bookmarkAfter {
		s.proving.inVain(now)
	}
	if !answers {
		return nil
	}
	a.waited = true
	return a
}

// listsForWaiting says whether a list may answer callers of WaitForFresh.
func (s *Reflector) listsForWaiting() bool {
	return s.requests.server != "" && s.few(fewBytes) && s.proving.mayHelp(s.clock.Now())
}

// few says whether a list of the metadata of all objects may ask, and has at most so many
// bytes.
func (s *Reflector) few(bytes int64) bool {
	_, all := metadataSize(s.store)
	return s.proving.mode == ConfirmAuto && all > 0 && all <= bytes && s.comparable()
}

// showsNothing says whether a list has shown nothing, not even about the link.
func showsNothing(err error) bool {
	return errors.Is(err, errNotWorth) || errors.Is(err, errNoMetadata) || errors.Is(err, errInFull) ||
		errors.Is(err, wire.ErrForm)
}

// listFew lists the metadata of all objects. A first byte must come within patience.
func (s *Reflector) listFew(ctx context.Context, patience time.Duration) (*page, error) {
	objects := int64(s.store.State().Objects)
	a, err := s.requests.metadata(ctx, patience, true, metav1.ListOptions{Limit: objects + max(objects/8, 8)})
	if err == nil {
		return &a, nil
	}
	s.log.V(1).Info("A list does not ask for the version", "source", s.store.Source().String(), "reason", err.Error())
	if !showsNothing(err) {
		err = fmt.Errorf("list the metadata of %s: %w", s.store.Source(), err)
	}
	return nil, err
}
