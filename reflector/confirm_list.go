package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// prove lists beside the watch of the template, and confirms once the file equals the
// list. It runs until then, until the watch has come to the list's version, or until ctx
// ends. After an error it leaves confirming to the bookmark. A list that has answered the
// question is not read again, see askByList.
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
func (s *Reflector) prove(ctx context.Context, t *template, changed *changedSince) (compared bool) {
	rv, asked := s.queue.Target()
	if rv == "" {
		return false
	}
	began := s.clock.Now()
	p := &proof{s: s, template: t, least: rv, changed: changed, listed: newKeySet()}
	p.each, p.all = metadataSize(s.store)
	p.expected = int64(s.store.State().Objects)
	var err error
	waited, answered := false, func() {}
	if a := s.proving.take(rv); a != nil {
		answered = sync.OnceFunc(func() {
			s.proving.compared(a)
			s.fresh.nudge() // callers that came since
		})
		defer answered()
		if waited = a.waited; waited {
			defer time.AfterFunc(s.o.confirmTimeout, func() { // as long as a short watch
				s.proving.inVain(s.clock.Now())
				answered()
			}).Stop()
		}
		p.size = a.size
		err = p.compare(a.listed, a.about)
	} else if s.proving.mode == ConfirmAuto && s.calmDown(ctx, t) != nil {
		return false
	} else {
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

// proveBeside starts prove beside the watch of the template. end ends it, and waits for it.
func (s *Reflector) proveBeside(ctx context.Context, t *template, changed *changedSince) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.status.setUncompared(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-t.noted: // that is before the watch is open
		case <-t.open:
		case <-ctx.Done():
		}
		// Once the watch has ended, a list that is there is for the next one.
		if ctx.Err() != nil || !s.prove(ctx, t, changed) {
			s.status.setUncompared(true)
		}
	}()
	return func() { cancel(); <-done }
}

// calmDown waits until the watch is open, and has brought everything or brings nothing for a
// moment.
func (s *Reflector) calmDown(ctx context.Context, t *template) error {
	select {
	case <-t.open:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		quiet, err := s.quiet(ctx)
		switch {
		case err != nil:
			return err
		case quiet || s.queue.Reached():
			return s.queue.Flush(ctx) // otherwise the file seems to lack what has come
		}
	}
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
	template  *template
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
	auto := p.s.proving.mode == ConfirmAuto
	switch known := p.template.known(); {
	case !known && auto:
		return errNotWorth
	case !known:
		return p.listObjects(ctx)
	}
	began := p.s.clock.Now()
	for page := int64(firstProvingPage); ; page = min(8*page, provingPage) {
		before := p.size
		took, err := p.page(ctx, page)
		if err != nil || p.done() {
			return err
		}
		left := time.Duration(float64(took) * float64(p.all-p.size) / float64(max(p.size-before, 1)))
		if page < provingPage {
			left /= 4 // most of that was one round trip
		}
		if auto && p.s.clock.Since(began)+left > bookmarkAfter {
			return fmt.Errorf("%w: it would take %s more", errNotWorth, left)
		}
	}
}

// page reads the next page, and compares it. It returns how long the page took.
func (p *proof) page(ctx context.Context, bytes int64) (took time.Duration, err error) {
	began := p.s.clock.Now()
	answer, err := p.template.list(ctx, pageAsk{
		objects: max(bytes/max(p.each, 1), 1), version: p.least, token: p.token,
	})
	if err != nil {
		if !errors.Is(err, errNotWorth) && ctx.Err() == nil {
			p.s.proving.failure()
		}
		return 0, err
	}
	took = p.s.clock.Since(began)
	p.size += answer.size
	if len(answer.listed) > 0 {
		p.each = max(p.size/(p.objects+int64(len(answer.listed))), 1)
		p.all = max(p.each*p.expected, p.size)
	}
	err = p.compare(answer.listed, answer.about)
	if errors.Is(err, errManyLacking) {
		err = p.catchUp(ctx)
	}
	return took, err
}

// listObjects lists whole objects with the caller's function, in pages.
func (p *proof) listObjects(ctx context.Context) error {
	for !p.done() {
		o := metav1.ListOptions{Limit: firstPage, Continue: p.token}
		if p.token == "" {
			o.ResourceVersion, o.ResourceVersionMatch = p.least, metav1.ResourceVersionMatchNotOlderThan
		}
		list, err := p.s.requests.list(ctx, p.s.o.quietTimeout, o)
		if err != nil {
			return err
		}
		about, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		var listed []listing.Object
		err = meta.EachListItem(list, func(obj runtime.Object) error {
			m, err := meta.Accessor(obj)
			if err == nil {
				listed = append(listed, listing.Object{Namespace: m.GetNamespace(), Name: m.GetName(),
					UID: string(m.GetUID()), ResourceVersion: m.GetResourceVersion()})
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := p.compare(listed, metav1.ListMeta{ResourceVersion: listVersion(about),
			Continue: about.GetContinue()}); err != nil {
			return err
		}
	}
	return nil
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
