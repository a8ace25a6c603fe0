package reflector

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
)

var (
	// errWentBack: a list that was begun for another reason has a version behind the
	// file's.
	errWentBack = errors.New("the server has gone back")
	// errAnother: a page may come from another cluster than the one that was found.
	errAnother = errors.New("another server answers")
	// errTokenExpired: the list took longer than the server keeps its history, and the
	// server does not offer the rest of the list.
	errTokenExpired = errors.New("continue token expired")
	// errOtherServer: the server is, or may be, behind the pages of an interrupted list,
	// or it is another cluster's.
	errOtherServer = errors.New("the server may be another one, or have gone back, since the list was interrupted")
)

// again says why a failed list is read again.
type again int

const (
	againNot       again = iota
	againFromStart       // the rest of an interrupted list cannot be had
	againWhole           // continue tokens expire before the list ends
	againRestored        // the server has gone back
	againElsewhere       // another cluster may have answered
)

// mostAgainByOther is how often a list is read again because another server has
// answered, or the same one has gone back.
const mostAgainByOther = 3

// again says why the list is to be read again after the error.
func (l *lister) again(err error) again {
	switch {
	case err == nil:
		return againNot
	case l.taken && (errors.Is(err, errTokenExpired) || errors.Is(err, errOtherServer) || apierrors.IsBadRequest(err)):
		return againFromStart
	case errors.Is(err, errTokenExpired) && !l.unpaged:
		return againWhole
	case errors.Is(err, errWentBack):
		return againRestored
	case errors.Is(err, errAnother):
		return againElsewhere
	}
	return againNot
}

// readAll reads a list into the file, and reads it again if that helps. It returns the
// lister that has read it.
func (s *Reflector) readAll(ctx context.Context, reason string, t *turn) (*lister, error) {
	s.enter(PhaseRelisting, reason)
	sign := s.sign(ctx)
	l := s.startList(ctx, reason, sign, t)
	for others := 0; ; {
		err := l.read()
		if err == nil {
			return l, nil
		}
		why := l.again(err)
		if why == againRestored || why == againElsewhere {
			if others++; others > mostAgainByOther {
				why = againNot
			}
		}
		switch why {
		case againNot:
			s.status.listed(0, nil)
			return nil, s.fail(ctx, err)
		case againWhole:
			l = l.inOneGo()
		case againFromStart, againRestored, againElsewhere:
			switch why {
			case againFromStart:
				s.log.Info("A list that was interrupted begins again", "source", s.store.Source().String(), "reason",
					err.Error())
			case againRestored:
				s.restored()
				reason = ReasonRestored
			}
			s.cluster.forget() // whatever the error was, another cluster may answer by now
			other, err1 := s.otherCluster(ctx)
			if err1 != nil {
				return nil, err1
			}
			if other {
				reason = ReasonCluster
			}
			l = s.startList(ctx, reason, sign, t)
			l.o.TakeUp = l.o.TakeUp && why != againFromStart
		}
	}
}

// startList returns a lister that reads a list from its start, or goes on with an
// interrupted one.
func (s *Reflector) startList(ctx context.Context, reason, sign string, t *turn) *lister {
	s.enter(PhaseRelisting, reason)
	l := s.newLister(ctx, reason, t)
	l.sign = sign
	l.o = boltstore.RelistOptions{
		NewTimeline: s.link.is(linkRestored) && s.hasContents(),
		ClusterUID:  s.cluster.is().ClusterUID, Server: s.cluster.server, TakeUp: !s.link.owesNote(),
		Content: sign == "" || sign != s.store.Upstream.Facts().ServedForm,
		Audit:   reason == ReasonDiffers || reason == ReasonAudit,
	}
	if !l.o.NewTimeline && s.store.State().Synced {
		l.least = s.newest()
	}
	return l
}

// hasContents says whether the file has contents that readers see.
func (s *Reflector) hasContents() bool {
	known := s.store.State()
	return known.Synced || known.Objects > 0
}

// ended is what the list shows about the server, once it has ended. It shows that versions
// stand still if something differs from the file at the file's own version, and nothing else
// explains that.
func (l *lister) ended() func(f *listing.Facts) {
	r, was, store := l.relist, l.s.store.State(), l.s.store
	explained := !was.Synced || was.Unstored > 0 || store.Err() != nil || store.Outdated() != "" ||
		l.o.Audit || l.o.NewTimeline
	same := l.at.rv == was.ResourceVersion && l.at.rv != ""
	return func(f *listing.Facts) {
		differs := r.Deleted > 0 || r.Changed > 0 && !r.Compared()
		f.Stands = f.Stands || r.Unversioned || differs && same && !explained
		f.Moved = f.Moved || f.Listed != "" && l.at.rv != "" && f.Listed != l.at.rv
		f.Listed, f.ServedForm = l.at.rv, l.sign
		f.Restored = f.Restored && !r.First() && !l.o.NewTimeline
	}
}

// inOneGo reads the list without pages, as client-go's pager does.
func (l *lister) inOneGo() *lister {
	n := l.s.newLister(l.ctx, l.reason, l.turn)
	n.o, n.sign = l.o, l.sign
	n.o.TakeUp = false
	n.size.limit, n.size.fixed, n.unpaged = 0, true, true
	n.least = l.least
	return n
}

// read reads all pages into the file.
func (l *lister) read() error {
	r, err := l.s.queue.BeginRelist(l.ctx, l.o)
	if err != nil {
		return err
	}
	defer r.Abort()
	l.relist = r
	if err := l.pages(l.s.cluster.trace(l.ctx)); err != nil {
		return err
	}
	r.Ended = l.ended()
	return r.Commit(l.ctx, l.at.rv, l.at.newest, l.at.target)
}
