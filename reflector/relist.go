package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// repair is a relist with a backoff of its own: the Reflector's is not told.
func (s *Source) repair(ctx context.Context, reason string, newHistory bool) error {
	now := s.o.Clock.Now()
	if now.Sub(s.last) > 2*time.Minute {
		s.backoff = newBackoff()
	} else {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.o.Clock.After(s.backoff.Step()):
		}
	}
	s.last = s.o.Clock.Now()
	return s.relist(ctx, reason, newHistory)
}

// relist reads everything, page by page, into the file.
func (s *Source) relist(ctx context.Context, reason string, newHistory bool) error {
	other, err := s.otherCluster(ctx)
	if err != nil {
		return err
	}
	if other {
		reason = ReasonCluster
	}
	s.enter(Relisting, reason)
	ctx, note := s.noteLink(ctx)
	defer note()
	o := boltstore.RelistOptions{NewHistory: newHistory && !other, ClusterUID: s.clusterUID, Server: s.o.Server}
	r, err := s.journal.Relist(ctx, o, s.pages(ctx, s.o.PageSize))
	if errors.Is(err, errTokenExpired) {
		r, err = s.journal.Relist(ctx, o, s.pages(ctx, 0))
	}
	if err != nil {
		return s.fail(ctx, fmt.Errorf("relist %s: %w", s.store.Source(), err))
	}
	s.mu.Lock()
	s.asked, s.restored = true, false // the list's version is the server's
	s.deniedSince = time.Time{}
	s.state.LastRelist, s.state.LastRelistAt = reason, s.o.Clock.Now()
	s.mu.Unlock()
	s.o.Logger.V(1).Info("Relisted", "source", s.store.Source().String(), "reason", reason, "resourceVersion", s.journal.Accepted(),
		"objects", r.Objects, "changed", r.Changed, "deleted", r.Deleted)
	return nil
}

// errTokenExpired: the list took longer than the server keeps its history.
var errTokenExpired = errors.New("continue token expired")

// pages lists consistently. A continue token that expires falls back to one
// page with everything, as client-go's pager does.
func (s *Source) pages(ctx context.Context, size int64) func(func([]runtime.Object) error) (string, error) {
	return func(page func([]runtime.Object) error) (rv string, err error) {
		o := metav1.ListOptions{Limit: size}
		for {
			list, err := s.listPage(ctx, s.o.QuietTimeout, o)
			if isExpired(err) && o.Continue != "" {
				return "", fmt.Errorf("%w: %w", errTokenExpired, err)
			}
			if err != nil {
				return "", err
			}
			m, err := meta.ListAccessor(list)
			if err != nil {
				return "", err
			}
			objs, err := meta.ExtractListWithAlloc(list)
			if err != nil {
				return "", err
			}
			if err := page(objs); err != nil {
				return "", err
			}
			if o.Continue = m.GetContinue(); o.Continue == "" {
				return m.GetResourceVersion(), nil
			}
		}
	}
}
