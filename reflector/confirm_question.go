package reflector

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/versions"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// askByList asks for the server's version by a list of the metadata of all objects. The
// list then confirms beside the watch, so that HasSynced comes a round trip or two sooner.
// It is for few objects, and under the automatic choice only.
//
// The answer is nil if the version must be asked for alone. The error is the link's.
func (s *Reflector) askByList(ctx context.Context) (*pageAnswer, error) {
	if !s.mayList() {
		return nil, nil
	}
	a, err := s.listFew(ctx, true)
	more := a != nil && a.about.Continue != "" // all of them are listed beside the watch
	if !more && !errors.Is(err, errNotAsked) {
		s.proving.try()
	}
	if showsNothing(err) {
		return nil, nil
	}
	return a, err
}

// askForWaiting is askByList for callers of WaitForFresh, once the server has stated a later
// version than the file's. They then need not wait for a bookmark. It returns nil if they
// must wait for the watch, or for a list of everything.
func (s *Reflector) askForWaiting(ctx context.Context, rv string) *pageAnswer {
	now := s.clock.Now()
	if !s.fresh.want() || !s.listsForWaiting() {
		return nil
	}
	if s.proving.lags(now) && (!s.link.bookmarkless() || s.listIn() <= 0) {
		return nil // a bookmark moves the resume point, or a list of everything
	}
	a, err := s.listFew(ctx, false)
	answers := a != nil && a.about.Continue == "" &&
		(listVersion(&a.about) == rv || versions.Newer(listVersion(&a.about), rv))
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
	return s.requests.server != "" && s.proving.mode == ConfirmAuto && s.proving.mayHelp(s.clock.Now())
}

// errNotAsked: no list was asked for.
var errNotAsked = fmt.Errorf("%w: it was not asked for", errNotWorth)

// showsNothing says whether a list has shown nothing, not even about the link.
func showsNothing(err error) bool {
	return errors.Is(err, errNotWorth) || errors.Is(err, errNoMetadata) || errors.Is(err, wire.ErrForm)
}

// listFew lists the metadata of all objects, if they are few.
func (s *Reflector) listFew(ctx context.Context, start bool) (*pageAnswer, error) {
	objects := int64(s.store.State().Objects)
	_, all := metadataSize(s.store)
	largest := int64(fewBytes)
	if start {
		largest = startBytes
	}
	if s.proving.mode != ConfirmAuto || objects == 0 || all > largest || !s.comparable() {
		return nil, errNotAsked
	}
	m, err := s.requests.template(ctx, s.queue.AcceptedVersion())
	if m == nil || err != nil {
		return nil, errNotAsked // the question meets the same error, and explains it
	}
	patience := min(s.requests.short(), bookmarkAfter)
	if start { // it is the question
		ctx, patience = s.cluster.trace(ctx), s.requests.short()
	}
	guarded, g := s.requests.guard(ctx, patience, metav1.ListOptions{})
	a, err := m.list(guarded, pageAsk{
		objects: objects + max(objects/8, 8), soon: true,
	})
	if err = g.end(err); err != nil {
		s.log.V(1).Info("A list does not ask for the version", "source", s.store.Source().String(), "reason",
			err.Error())
		if !showsNothing(err) {
			err = fmt.Errorf("list the metadata of %s: %w", s.store.Source(), err)
		}
		return nil, err
	}
	return &a, nil
}

// template returns the template of the source's lists, without a request. It is nil if
// the caller's watch function asks for something else, or translates versions: then the
// server's own version would mean nothing.
func (r *requests) template(ctx context.Context, version string) (*template, error) {
	m := newTemplate(r.source)
	if err := intercept(context.WithValue(ctx, templateKey{}, m), r.raw, &probe{version: version}); err != nil {
		return nil, err
	}
	if !m.known() || m.req.URL.Query().Get("resourceVersion") != version {
		return nil, nil
	}
	return m, nil
}
