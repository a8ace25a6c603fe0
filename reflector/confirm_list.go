package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/listing"
)

// errNotWorth: a bookmark will come sooner, or the list would take too much of the link.
var errNotWorth = errors.New("reflector: the bookmark is left to confirm")

// errManyLacking: more objects are not as listed than are kept in memory.
var errManyLacking = fmt.Errorf("%w: many objects are not as listed", errNotWorth)

// errBroke: the link has broken, or the server has been asked again.
var errBroke = fmt.Errorf("%w: the link has broken since", errNotWorth)

// prove lists beside a watch, and confirms once the file equals the
// list. It runs until then, until the watch has come to the list's version, or until ctx
// ends. After an error it leaves confirming to the bookmark. What has answered the question is
// not read again, see askByList.
//
// The list is of version L, the stated version or a later one. Suppose that at one
// commit, of version C, the file has all listed objects as listed, and no other object.
// If C is before L, no object that exists at L has changed since C, and
// objects created since C are gone again. So the file is as the server was at L. If C is L
// or later, the watch has brought everything up to L. Pages may be compared at one commit
// each, and the number of objects at the last one. While commits are before L, an object
// that was as listed stays so.
//
// The watch still brings the objects that were created since C and are gone again. The
// queue keeps them from readers until it has everything up to L, see
// fifo.Queue.ConfirmListed.
func (s *Reflector) prove(ctx context.Context, open <-chan struct{}, changed *changedSince, listed *page) (
	compared bool,
) {
	rv, asked := s.queue.Target()
	if rv == "" {
		return false
	}
	began := s.clock.Now()
	p := &proof{s: s, least: rv, changed: changed, listed: newKeySet()}
	p.each, p.all = metadataSize(s.store)
	p.expected = int64(s.store.State().Objects)
	var err error
	waited, answered := false, func() {}
	if listed != nil {
		answered = sync.OnceFunc(func() {
			s.proving.compare(false)
			s.fresh.nudge() // callers that came since
		})
		defer answered()
		if waited = listed.waited; waited {
			defer time.AfterFunc(s.o.confirmTimeout, func() { // as long as a short watch
				s.proving.inVain(s.clock.Now())
				answered()
			}).Stop()
		}
		p.size = listed.size
		err = p.compare(listed.listed, listed.about)
	} else {
		select { // under HTTP/1 the list would take the connection of the question from the watch
		case <-open:
		case <-ctx.Done():
			return false
		}
	}
	if err == nil && !p.done() {
		err = p.list(ctx)
	}
	if p.size > 0 && p.objects > 0 {
		s.store.Upstream.NoteFacts(func(f *listing.Facts) { f.MetadataSize = uint64(max(p.size/p.objects, 1)) })
	}
	if err == nil {
		err = p.settle(ctx, fifo.Listed{Target: rv, Asked: asked, At: p.rv}, answered)
	}
	switch {
	case err == nil:
		s.compared()
	case errors.Is(err, errDisproved):
		s.disproved(p.rv)
	}
	took := s.clock.Since(began)
	// a bookmark came no later
	if err != nil && waited && (ctx.Err() == nil && !errors.Is(err, errBroke) || took > time.Second) {
		s.proving.inVain(s.clock.Now())
	}
	if err != nil && ctx.Err() == nil {
		s.log.V(1).Info("A list does not confirm", "source", s.store.Source().String(), "reason", err.Error())
		return false
	}
	s.log.V(2).Info("Compared with a list", "source", s.store.Source().String(), "objects", p.objects, "took", took,
		"error", err)
	return err == nil
}

// proveBeside starts prove beside a watch, which is open once the channel is closed. end ends
// it, and waits for it.
func (s *Reflector) proveBeside(ctx context.Context, open <-chan struct{}, changed *changedSince, listed *page) (
	end func(),
) {
	ctx, cancel := context.WithCancel(ctx)
	s.status.setUncompared(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !s.prove(ctx, open, changed, listed) {
			s.status.setUncompared(true)
		}
	}()
	return func() { cancel(); <-done }
}

// quiet waits for a moment, and says whether the watch has brought nothing in it.
func (s *Reflector) quiet(ctx context.Context) (bool, error) {
	before := s.queue.Counted()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-s.clock.After(calm):
		return s.queue.Counted() == before, nil
	}
}

// proof is a list that is being compared with the file.
type proof struct {
	s         *Reflector
	least     string // version that the list must reach
	expected  int64  // objects
	each, all int64  // bytes of an object's metadata, and of all, as expected

	rv, token string
	objects   int64
	size      int64 // bytes of metadata, unpacked
	lacking   []listing.Object
	listed    keySet
	changed   *changedSince
}

// done says whether the list has come to its end.
func (p *proof) done() bool { return p.rv != "" && p.token == "" }

// list reads all pages, which grow. Under the automatic choice it gives up the rest if that
// would not come before the bookmark: it would only delay the bookmark.
func (p *proof) list(ctx context.Context) error {
	began := p.s.clock.Now()
	size := pageSize{limit: max(firstProvingPage/max(p.each, 1), 1), bytes: provingPage}
	if p.s.requests.server == "" { // whole objects come
		size.limit = firstPage
	}
	for {
		got, err := p.page(ctx, size.limit)
		if err != nil || p.done() {
			return err
		}
		left := time.Duration(float64(got.took) * float64(p.all-p.size) / float64(max(got.size, 1)))
		if got.size < provingPage/2 {
			left /= 4 // most of that was one round trip
		}
		if p.s.proving.mode == ConfirmAuto && p.s.clock.Since(began)+left > bookmarkAfter {
			return fmt.Errorf("%w: it would take %s more", errNotWorth, left)
		}
		size.fit(got.size, len(got.listed), got.took)
	}
}

// page reads the next page, and compares it.
func (p *proof) page(ctx context.Context, limit int64) (page, error) {
	o := metav1.ListOptions{Limit: limit, Continue: p.token}
	if p.token == "" {
		o.ResourceVersion, o.ResourceVersionMatch = p.least, metav1.ResourceVersionMatchNotOlderThan
	}
	got, err := p.s.requests.metadata(ctx, p.s.o.quietTimeout, false, o)
	if err != nil {
		if ctx.Err() == nil {
			p.s.proving.spend()
		}
		return got, err
	}
	p.size += got.size
	if len(got.listed) > 0 {
		p.each = max(p.size/(p.objects+int64(len(got.listed))), 1)
		p.all = max(p.each*p.expected, p.size)
	}
	err = p.compare(got.listed, got.about)
	if errors.Is(err, errManyLacking) {
		err = p.catchUp(ctx)
	}
	return got, err
}

// compare notes the objects of a page that the file lacks.
func (p *proof) compare(listed []listing.Object, about metav1.ListMeta) error {
	if c, err := resourceversion.CompareResourceVersion(about.ResourceVersion, p.least); err != nil || c < 0 ||
		p.rv != "" && about.ResourceVersion != p.rv {
		return fmt.Errorf("%w: the list is of version %q, after %q, and %q is wanted", errNotWorth,
			about.ResourceVersion, p.rv, p.least)
	}
	lacking, _, err := p.s.store.Upstream.Holds(listed, 0, nil)
	if err != nil {
		return err
	}
	for _, o := range listed {
		p.listed.add(o.Key())
	}
	p.rv, p.token, p.objects = about.ResourceVersion, about.Continue, p.objects+int64(len(listed))
	if p.lacking = append(p.lacking, lacking...); len(p.lacking) > mostLacking {
		return fmt.Errorf("%w: %d", errManyLacking, len(p.lacking))
	}
	return nil
}
