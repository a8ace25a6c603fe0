package reflector

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// askByList asks for the server's version by a list of the metadata of all objects. The
// list then confirms beside the watch, so that HasSynced comes a round trip or two sooner.
// It is for few objects, and under the automatic choice only.
//
// The answer is nil if the version must be asked for alone. The error is the link's.
func (s *ListerWatcher) askByList(ctx context.Context) (*pageAnswer, error) {
	objects := int64(s.store.State().Objects)
	_, all := metadataSize(s.store)
	if s.proving.mode != ConfirmAuto || objects == 0 || all > fewBytes || !s.comparable() || !s.waits() || !s.proving.may() {
		return nil, nil
	}
	m, err := s.requests.template(ctx, s.queue.AcceptedVersion())
	if m == nil || err != nil {
		return nil, nil // the question meets the same error, and explains it
	}
	guarded, g := s.requests.guard(ctx, s.requests.short(), metav1.ListOptions{})
	a, err := m.list(s.cluster.trace(guarded), pageAsk{objects: objects + max(objects/8, 8), pack: true, most: all*5/4 + 1<<10, few: true})
	if err = g.end(err); !errors.Is(err, errNoRoom) {
		s.proving.try()
	}
	switch {
	case errors.Is(err, errNotWorth), errors.Is(err, errNoMetadata), errors.Is(err, wire.ErrForm):
		s.log.V(1).Info("A list does not ask for the version", "source", s.store.Source().String(), "reason", err.Error())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the metadata of %s: %w", s.store.Source(), err)
	}
	m.t.speed.paged(a.size, a.took)
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
