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
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/versions"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

const (
	// pagePatience is how long a page is tried again. After that a repair loses the pages
	// that it has read. A first list keeps its pages for the next try.
	pagePatience = 10 * time.Minute
)

// lister reads all pages of one list into one relist. It is one type because each page
// decides how the next one is asked for.
type lister struct {
	s      *Reflector
	ctx    context.Context // of the caller; the one of pages also notes which server answers
	reason string
	turn   *turn // given back while a page has to wait
	o      boltstore.RelistOptions
	sign   string       // of the served form, see Reflector.sign
	relist *fifo.Relist // once it has begun
	size   pageSize

	least   string // an earlier version is of another timeline; "": any will do
	unpaged bool   // the list is asked for without pages
	taken   bool   // the list goes on with one that was interrupted
	inFull  bool   // the rest of this list is asked for without metadata first
	moved   bool   // objects have changed since they were listed; the watch brings them

	at listPosition
}

// listPosition is how far a list has come.
type listPosition struct {
	rv      string // version of the first page
	newest  string // version of the last page
	target  string // version that the watch must reach
	settled string // version by which the watch has brought the objects left to it
	stated  string // version that the server stated when the list was taken up
	token   string // continue token of the next page
	began   time.Time
}

func (s *Reflector) newLister(ctx context.Context, reason string, t *turn) *lister {
	l := &lister{s: s, ctx: ctx, reason: reason, turn: t, at: listPosition{began: s.clock.Now()}}
	l.size = pageSize{limit: s.facts.pageSize, smallest: firstPage, bytes: s.o.pageBytes}
	if s.o.pageSize > 0 {
		l.size.limit, l.size.fixed = s.o.pageSize, true
	}
	if s.facts.pageSize == firstPage { // no list has shown which size fits
		l.size.begin(recordSize(s.store))
	}
	return l
}

// pages reads the pages, all of one version, and hands them to the relist. While
// the relist takes one page the next is read.
func (l *lister) pages(ctx context.Context) error {
	if err := l.takeUp(ctx); err != nil {
		return err
	}
	if l.taken && l.at.token == "" {
		return nil
	}
	if l.taken {
		l.s.status.listed(l.relist.Objects, nil)
		ctx = l.s.cluster.trace(l.ctx)
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
		for range read { // until the reader has ended
		}
	}()
	for p := range read {
		if err := l.relist.Keep(p.kept); err != nil {
			return err
		}
		if err := l.relist.PageTo(p.objs, p.at); err != nil {
			return err
		}
		l.s.status.listed(l.relist.Objects, p.rest)
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
	kept []listing.Object // objects that are in the file already
	at   listing.Progress
	rest *int64 // objects that are left, nil: the server does not say
}

// next reads a page. Any page but the first is tried again if it fails. If the server has
// forgotten the list's version and offers the rest in its present state, next takes that.
func (l *lister) next(ctx context.Context) (p listPage, err error) {
	backoff := newBackoff()
	retried, rest := false, false
	for since := l.s.clock.Now(); ; {
		began := l.s.clock.Now()
		raw := l.raw()
		list, size, err := l.s.requests.measured(raw.in(ctx), l.s.o.quietTimeout, l.size.most(),
			metav1.ListOptions{Limit: l.size.limit, Continue: l.at.token})
		kept, rawErr := raw.result()
		if err == nil && rawErr == nil {
			l.learn(raw)
			err = l.check(ctx, list, kept, retried)
		}
		switch {
		case l.adapt(ctx, err, rawErr):
			retried = retried || errors.Is(err, errTooLarge) // its connection is lost
			continue
		case rawErr != nil:
			return p, rawErr
		case err == nil:
			l.resize(l.weight(raw, size), meta.LenList(list)+len(kept), l.s.clock.Since(began))
			p.kept, p.rest = kept, remaining(list)
			p.objs, p.at, err = l.accept(list)
			l.s.guessMetadata(p.objs)
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
			rest = true // it is the present state, and does not expire
			continue
		case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge): // the server is behind the list
			return p, fmt.Errorf("%w: %w", errWentBack, err)
		case errors.Is(err, errAnother) || !isTransient(err) || l.s.clock.Since(since) > pagePatience:
			return p, err
		}
		retried = true
		l.resize(0, 0, slowPage)
		waited, err := l.pause(ctx, err, backoff.Step())
		if err != nil {
			return p, err
		}
		since = since.Add(waited)
	}
}

// adapt changes how pages are asked for, if the error of the answer (err) or of reading it
// raw (rawErr) calls for that. It says whether the page is to be asked for again at once.
func (l *lister) adapt(ctx context.Context, err, rawErr error) bool {
	log := func(text string, more ...any) {
		l.s.log.V(1).Info(text, append([]any{"source", l.s.store.Source().String()}, more...)...)
	}
	switch {
	case errors.Is(err, errTooLarge) && ctx.Err() == nil:
		log("A page is too large", "objects", l.size.limit)
		l.size.limit = max(l.size.limit/tooLarge, 1)
		l.s.facts.pageSize = l.size.limit
	case errors.Is(rawErr, errInFull), errors.Is(rawErr, errNoMetadata):
		log("Objects are listed in full", "reason", rawErr.Error())
		l.inFull = true
		l.s.facts.noMetadata = l.s.facts.noMetadata || errors.Is(rawErr, errNoMetadata)
	case errors.Is(rawErr, wire.ErrForm):
		log("Pages are left to the client", "reason", rawErr.Error())
		l.s.facts.notRaw = true
	default:
		return false
	}
	return true
}

// pause waits before a page is tried again. Other relists may run during that time. pause
// returns how long it then had to wait for its turn.
func (l *lister) pause(ctx context.Context, failed error, d time.Duration) (waited time.Duration, err error) {
	l.s.enter(phaseOf(failed), failed.Error())
	l.turn.leave()
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-l.s.clock.After(d):
	}
	began := l.s.clock.Now()
	if err := l.turn.take(ctx); err != nil {
		return 0, err
	}
	l.s.enter(PhaseRelisting, l.reason)
	return l.s.clock.Since(began), nil
}

// weight is how much memory a page takes. For a page of metadata it is at least a quarter
// of the full page: the next page may have to be a full one.
func (l *lister) weight(p *rawPage, size int64) int64 {
	w := p.weight(size)
	if p != nil && p.metadata != nil {
		return max(w, recordSize(l.s.store)*int64(p.metadata.objects)/4)
	}
	return w
}

// accept takes the objects out of a page, and notes how far the list has come.
func (l *lister) accept(list runtime.Object) (objs []runtime.Object, at listing.Progress, err error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, at, err
	}
	if objs, err = meta.ExtractListWithAlloc(list); err != nil {
		return nil, at, err
	}
	l.s.facts.zero.Store(m.GetResourceVersion() == "0")
	l.at.token, l.at.newest = m.GetContinue(), listVersion(m)
	l.at.target = later(cmp.Or(l.at.settled, l.at.newest), l.at.stated)
	if l.at.rv == "" {
		l.at.rv = listVersion(m)
	}
	if versions.Newer(l.least, l.at.rv) || versions.Newer(l.at.rv, listVersion(m)) {
		return nil, at, errWentBack
	}
	return objs, l.progress(listVersion(m)), nil
}

// remaining is how many objects the server says are left after a page.
func remaining(list runtime.Object) *int64 {
	m, err := meta.ListAccessor(list)
	switch {
	case err != nil:
		return nil
	case m.GetContinue() == "":
		return new(int64)
	}
	return m.GetRemainingItemCount()
}

// resize sets the size of the next page, and of the first page of the next list.
func (l *lister) resize(size int64, objects int, took time.Duration) {
	if !l.size.fixed {
		l.size.fit(size, objects, took)
		l.s.facts.pageSize = l.size.limit
	}
}

// restToken is the token that the server offers in place of an expired one.
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
		return true // an error of the link
	}
	code := status.Status().Code
	return code >= 500 || code == 429 || code == 408
}

// shrink makes the next list begin with fewer objects: the first page of this one did not
// arrive whole.
func (l *lister) shrink() {
	if !l.size.fixed {
		l.s.facts.pageSize = min(l.size.limit, max(l.size.limit/2, smallestPage))
	}
}
