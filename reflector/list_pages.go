package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

const (
	// aheadAfter is how long a list may take before its watch is opened beside
	// it: servers keep at least 75 s of events.
	aheadAfter = 15 * time.Second
	// pagePatience is how long a page is tried again. What a repair has read by
	// then is lost; the next one goes on with a first list.
	pagePatience = 10 * time.Minute
)

// lister reads all pages of one list into one relist.
type lister struct {
	s      *ListerWatcher
	ctx    context.Context // that of its caller, not only of the pages
	reason string
	turn   *turn // left while a page is waited for
	o      boltstore.RelistOptions
	relist *fifo.Relist // once it has begun
	size   pageSize

	least  string // versions before it are of another history; "": none are
	flow   string // what the pages' answers must name; "": what the first one does
	whole  bool   // not in pages
	taken  bool   // from one that was interrupted
	inFull bool   // no metadata first, for the rest of this list
	moved  bool   // something was left to the watch
	late   bool   // the sign of the served form is learned behind the first page

	at            progress
	form          string // sign of the served form
	ahead         *ahead
	full, partial total
}

// progress is how far a list has come.
type progress struct {
	rv      string // of the first page
	newest  string // of the last
	settled string // how far the watch must go for what was left to it
	stated  string // by the server, when the list was taken up
	token   string // for the next page
	began   time.Time
}

func (s *ListerWatcher) newLister(ctx context.Context, reason string, t *turn) *lister {
	l := &lister{s: s, ctx: ctx, reason: reason, turn: t, at: progress{began: s.o.Clock.Now()}}
	l.size = pageSize{limit: s.facts.pageSize, smallest: firstPage, bytes: s.o.PageBytes}
	if s.o.PageSize > 0 {
		l.size.limit, l.size.fixed = s.o.PageSize, true
	}
	return l
}

// pages lists consistently. While one page is taken the next is read.
func (l *lister) pages(ctx context.Context) error {
	if err := l.takeUp(ctx); err != nil {
		return err
	}
	if l.taken && l.at.token == "" {
		return nil
	}
	if l.taken {
		ctx = l.s.cluster.trace(ctx) // over which the pages come
		defer l.soon(l.s.o.Clock.Now())
	}
	ctx, cancel := context.WithCancel(ctx)
	read, failed := make(chan listPage), make(chan error, 1)
	go func() {
		defer close(read)
		for {
			p, err := l.next(ctx)
			if err != nil {
				failed <- err
				return
			}
			select {
			case read <- p:
			case <-ctx.Done():
				failed <- context.Cause(ctx)
				return
			}
			if l.at.token == "" {
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range read { // until it has ended
		}
	}()
	for p := range read {
		if err := l.relist.Keep(p.kept); err != nil {
			return err
		}
		if err := l.relist.PageTo(p.objs, p.at); err != nil {
			return err
		}
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// listPage is a page that has been read.
type listPage struct {
	objs []runtime.Object
	kept []boltstore.Listed // what is in the file already
	at   boltstore.ListProgress
}

// next reads a page. Once there is something to lose, a page that fails is
// tried again, where it is; and where the server no longer knows the list's
// version but offers the rest as it is now, that is taken.
func (l *lister) next(ctx context.Context) (p listPage, err error) {
	backoff := newBackoff()
	retried, rest := false, false
	for since := l.s.o.Clock.Now(); ; {
		began := l.s.o.Clock.Now()
		if l.at.rv != "" && (l.taken || began.Sub(l.at.began) > aheadAfter) {
			l.keepAhead() // without a watch the list goes on all the same
		}
		raw := l.raw()
		list, size, err := l.s.requests.measured(raw.in(ctx), l.s.o.QuietTimeout, metav1.ListOptions{Limit: l.size.limit, Continue: l.at.token})
		kept, rawErr := raw.result()
		if err == nil && rawErr == nil {
			l.measured(raw, size, meta.LenList(list)+len(kept))
			if err = l.settle(ctx, list); err == nil {
				err = l.same(ctx, retried)
			}
		}
		switch {
		case errors.Is(rawErr, errInFull), errors.Is(rawErr, errNoMetadata):
			l.s.o.Logger.V(1).Info("Objects are listed in full", "source", l.s.store.Source().String(), "reason", rawErr.Error())
			l.inFull = true
			l.s.facts.noMetadata = l.s.facts.noMetadata || errors.Is(rawErr, errNoMetadata)
			continue
		case errors.Is(rawErr, wire.ErrForm):
			l.s.o.Logger.V(1).Info("Pages are left to the client", "source", l.s.store.Source().String(), "reason", rawErr.Error())
			l.s.facts.notRaw = true
			continue
		case rawErr != nil:
			return p, rawErr
		case err == nil:
			l.resize(l.weight(raw, size), meta.LenList(list)+len(kept), l.s.o.Clock.Since(began))
			p.kept = kept
			first := l.at.rv == "" && !l.taken
			if p.objs, p.at, err = l.accept(list); err == nil && first && l.late {
				l.form = l.s.form.late(ctx)
				p.at.Form = l.form
			}
			return p, err
		case l.at.token == "" || ctx.Err() != nil:
			if l.at.rv == "" && size > 0 && ctx.Err() == nil && isTransient(err) {
				l.shrink()
			}
			return p, err
		case isExpired(err):
			if l.at.token = restToken(err); l.at.token == "" || rest {
				return p, fmt.Errorf("%w: %w", errTokenExpired, err)
			}
			rest = true // as it is now, which does not expire
			continue
		case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge): // it does not know the list's version yet, or any more
			return p, fmt.Errorf("%w: %w", errWentBack, err)
		case errors.Is(err, errAnother) || !isTransient(err) || l.s.o.Clock.Since(since) > pagePatience:
			return p, err
		}
		retried = true
		l.resize(0, 0, slowPage)
		l.s.enter(PhaseOffline, err.Error())
		l.turn.leave()
		select {
		case <-ctx.Done():
			return p, context.Cause(ctx)
		case <-l.s.o.Clock.After(backoff.Step()):
		}
		left := l.s.o.Clock.Now()
		if err := l.turn.take(ctx); err != nil {
			return p, err
		}
		since = since.Add(l.s.o.Clock.Since(left)) // others' time is not its own
		l.s.enter(PhaseRelisting, l.reason)
	}
}

// keepAhead has a watch open, which begins at the list's version.
func (l *lister) keepAhead() {
	if l.ahead == nil {
		l.ahead = openAhead(l.ctx, &l.s.requests, l.s.patience.get(), l.at.rv)
	} else {
		l.ahead.again(l.ctx, &l.s.requests, l.s.patience.get())
	}
}

// same fails if the page that has been read may be of another cluster than those
// before it, or than what the file has. The cluster is asked for where its answer
// names another flow schema, or none and was read behind a broken link.
func (l *lister) same(ctx context.Context, retried bool) error {
	if l.s.o.Server == "" {
		return nil // not a client whose answers we can see
	}
	_, flow := l.s.cluster.told()
	if l.at.rv == "" && l.flow == "" {
		l.flow = flow
	}
	if flow == l.flow && (flow != "" || !retried) {
		return nil
	}
	told, err := l.s.requests.clusterUID(ctx)
	switch uid := l.s.cluster.uid(); {
	case err != nil:
		return err
	case uid == "" && flow == l.flow:
		return nil // nothing tells them apart
	case uid == "" || uid != told.uid && (told.uid != "" || flow != l.flow):
		return errAnother
	}
	l.flow = flow // a server that starts names others at first
	return nil
}

// settle learns, at the last page, how far the watch must go until the file has
// what was left to it.
func (l *lister) settle(ctx context.Context, list runtime.Object) error {
	if !l.moved {
		return nil
	}
	m, err := meta.ListAccessor(list)
	if err != nil || m.GetContinue() != "" {
		return err
	}
	l.at.settled, err = l.s.serverVersion(ctx)
	return err
}

// weight is what a page costs in memory; of metadata, what the page would in
// full: the next one may have to be.
func (l *lister) weight(p *rawPage, size int64) int64 {
	w := p.weight(size)
	if p != nil && p.metadata != nil {
		_, unpacked := l.s.facts.fullSizes(l.s.store)
		return max(w, unpacked*int64(p.metadata.objects)/4)
	}
	return w
}

func (l *lister) accept(list runtime.Object) (objs []runtime.Object, at boltstore.ListProgress, err error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, at, err
	}
	if objs, err = meta.ExtractListWithAlloc(list); err != nil {
		return nil, at, err
	}
	l.s.facts.zero.Store(m.GetResourceVersion() == "0")
	l.at.token, l.at.newest = m.GetContinue(), later(cmp.Or(l.at.settled, listVersion(m)), l.at.stated)
	if l.at.rv == "" {
		l.at.rv = listVersion(m)
	}
	if isBehind(l.at.rv, l.least) || isBehind(listVersion(m), l.at.rv) {
		return nil, at, errWentBack
	}
	return objs, l.progress(listVersion(m)), nil
}

// resize fits the next page, and the first page of the next list.
func (l *lister) resize(size int64, objects int, took time.Duration) {
	if !l.size.fixed {
		l.size.fit(size, objects, took)
		l.s.facts.pageSize = l.size.limit
	}
}

// restToken is what the server offers in place of a token that has expired.
func restToken(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// isTransient says whether the server may answer the same request later on.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // of the link
	}
	code := status.Status().Code
	return code >= 500 || code == 429 || code == 408
}

// shrink has the next list begin with fewer objects than this one, whose first
// page has not come as a whole.
func (l *lister) shrink() {
	if !l.size.fixed {
		l.s.facts.pageSize = max(l.size.limit/2, smallestPage)
	}
}
