package reflector

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kubewake/kubewake/internal/listing"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// purgeAfter is how long a refusal lasts before it is believed. A starting server refuses,
// for a moment, requests that it will allow.
const purgeAfter = time.Minute

func isDenied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

// phaseOf is the phase after a request that failed, unless access was refused. Where the
// file cannot be written, such as on a full disk, the server was there.
func phaseOf(err error) Phase {
	if errors.As(err, new(listing.NotWritten)) {
		return PhaseFailing
	}
	if st := apierrors.APIStatus(nil); errors.As(err, &st) && st.Status().Code >= http.StatusInternalServerError {
		return PhaseFailing
	}
	return PhaseOffline
}

// denied notes a refusal, and purges if it has lasted.
func (s *Reflector) denied(ctx context.Context, err error) {
	lasted := s.link.refuses()
	s.enter(PhaseDenied, err.Error())
	if !s.o.PurgeDenied || lasted < purgeAfter {
		return
	}
	if !s.store.State().Synced { // the pages of an interrupted list go, too
		if err := s.store.Upstream.DropPartial(); err != nil {
			s.log.Error(err, "The server refuses these objects, and those already listed could not be removed yet",
				"source", s.store.Source().String())
		}
		return
	}
	if s.queue.AcceptedVersion() == "" && s.store.State().Objects == 0 {
		return // purged
	}
	known := s.store.State()
	if s.cluster.server != "" {
		id, failed := s.cluster.identify(ctx, known, time.Now())
		if failed == nil && id.other {
			if failed = s.cluster.empty(ctx, known, id.by); failed == nil { // none of its objects has been deleted
				s.link.another()
			}
		}
		if failed != nil || id.other || !id.sure {
			return
		}
		if apierrors.IsUnexpectedServerError(err) && id.by.ClusterUID == "" {
			return // a gateway may have answered in place of the server
		}
	}
	if err := s.queue.Purge(ctx); err != nil {
		s.log.Error(err, "The server refuses these objects, and they could not be purged yet", "source",
			s.store.Source().String())
		return
	}
	s.log.Info("The server refuses these objects, they have been purged", "source", s.store.Source().String(),
		"refused", err.Error())
}
