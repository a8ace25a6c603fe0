package reflector

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/versions"
)

// A cache that never lists again keeps what a server's watch has left out. So a list that
// was read whole is compared to the end: once the file has come to the list's version and
// still differs, the server's list is right, and a relist repairs the file.

// errDisproved: the file has come to a list's version, and is not as listed.
var errDisproved = errors.New("reflector: the file differs from a list of its own version")

// changedSince has the keys that the watch has brought after the version that a list must
// reach, with their newest versions. At an earlier version these objects were otherwise, or
// absent.
type changedSince struct {
	least string
	mu    sync.Mutex
	keys  map[string]string
}

// add notes an event before it is on its way into the file.
func (c *changedSince) add(ev watch.Event) {
	m, err := meta.Accessor(ev.Object)
	if c == nil || err != nil || ev.Type == watch.Bookmark || ev.Type == watch.Error ||
		!versions.Newer(m.GetResourceVersion(), c.least) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]string{}
	}
	if len(c.keys) <= mostLacking {
		c.keys[listing.Object{Namespace: m.GetNamespace(), Name: m.GetName()}.Key()] = m.GetResourceVersion()
	}
}

// after returns the keys with changes after the version. ok is false if there are too many.
func (c *changedSince) after(rv string) (keys map[string]bool, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys = map[string]bool{}
	for key, newest := range c.keys {
		if versions.Newer(newest, rv) {
			keys[key] = true
		}
	}
	return keys, len(c.keys) <= mostLacking
}

// keySet has hashes of keys.
type keySet struct {
	seed maphash.Seed
	keys map[uint64]struct{}
}

func newKeySet() keySet { return keySet{maphash.MakeSeed(), map[uint64]struct{}{}} }

func (s keySet) add(key string) { s.keys[maphash.String(s.seed, key)] = struct{}{} }

func (s keySet) has(key string) bool {
	_, ok := s.keys[maphash.String(s.seed, key)]
	return ok
}

// settle compares the whole list with the file after each commit, until they are equal or
// the file has come to the list's version. Equal earlier, the list confirms. answered is
// called once it has, or once an event or a bookmark has.
func (p *proof) settle(ctx context.Context, l fifo.Listed, answered func()) error {
	for over := false; ; {
		l.Stored = p.s.queue.Stored()
		there := over || p.s.queue.StoredUpTo(p.rv)
		equal, err := p.equal()
		if err != nil {
			return err
		}
		confirmed, stands := p.s.queue.Reached(), true
		if equal {
			confirmed, stands = p.s.queue.ConfirmListed(l)
		}
		if confirmed {
			answered()
		}
		switch {
		case equal && (there || confirmed):
			return nil
		case !stands:
			return errBroke
		case ctx.Err() != nil: // a relist may have changed the file since, which the watch does not show
			return context.Cause(ctx)
		case equal || p.s.queue.Stored() != l.Stored: // something has been stored since
		case there:
			return p.differs()
		}
		if over = false; p.passed() {
			if over, err = p.s.quiet(ctx); over {
				err = p.s.queue.Flush(ctx)
			}
		} else {
			err = p.s.queue.AwaitStored(ctx, l.Stored, p.rv)
		}
		if err != nil {
			return err
		}
	}
}

// passed says whether the watch has brought the list's version and then earlier ones: it
// replays objects in no order, so what it brings last shows nothing.
func (p *proof) passed() bool {
	q := p.s.queue
	return !versions.Newer(p.rv, q.NewestVersion()) && versions.Newer(p.rv, q.AcceptedVersion())
}

// catchUp waits until the file has come to the list's version. What it then lacks of the
// pages so far was left out by the watch.
func (p *proof) catchUp(ctx context.Context) error {
	for stored := p.s.queue.Stored(); !p.s.queue.StoredUpTo(p.rv); stored = p.s.queue.Stored() {
		if err := p.s.queue.AwaitStored(ctx, stored, p.rv); err != nil {
			return err
		}
	}
	switch _, err := p.equal(); {
	case err != nil || len(p.lacking) == 0:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return p.differs()
}

// differs is the error of a file that has come to the list's version and is not as listed.
func (p *proof) differs() error {
	if p.s.comparable() {
		return errDisproved
	}
	return fmt.Errorf("%w: the file has objects that the server has not shown so", errNotWorth)
}

// equal says whether the file is as listed, but for objects that have changed since.
func (p *proof) equal() (bool, error) {
	since, ok := p.changed.after(p.rv)
	if !ok {
		return false, fmt.Errorf("%w: too much has changed since", errNotWorth)
	}
	p.lacking = slices.DeleteFunc(p.lacking, func(o listing.Object) bool { return since[o.Key()] })
	others := p.objects
	for key := range since {
		if p.listed.has(key) {
			others--
		}
	}
	lacking, only, err := p.s.store.Upstream.Holds(p.lacking, uint64(others), slices.Collect(maps.Keys(since)))
	if err == nil {
		p.lacking = lacking
	}
	return len(lacking) == 0 && only && p.s.store.Err() == nil, err
}

// compareAnswer compares a list that has answered the question with the file, if it is whole
// and of the same version. Otherwise it returns false twice.
func (s *Reflector) compareAnswer(ctx context.Context, a *page) (compared, equal bool, err error) {
	if a == nil || a.about.Continue != "" || a.about.ResourceVersion != s.queue.AcceptedVersion() || !s.comparable() {
		return false, false, nil
	}
	s.queue.DropHeld()
	if err := s.queue.Flush(ctx); err != nil {
		return false, false, err
	}
	lacking, only, err := s.store.Upstream.Holds(a.listed, uint64(len(a.listed)), nil)
	if err != nil || s.queue.AcceptedVersion() != a.about.ResourceVersion {
		return false, false, err
	}
	return true, len(lacking) == 0 && only, nil
}

// compared notes that the file is as a list has shown it.
func (s *Reflector) compared() {
	s.store.Upstream.NoteCompared()
	s.status.setUncompared(false)
	s.audit.compared()
}

// disproved notes that the file is not, so that a relist comes before the next watch.
func (s *Reflector) disproved(rv string) {
	s.log.Info("The watch has left out changes, as a list of the same version shows; a relist repairs the file",
		"source", s.store.Source().String(), "resourceVersion", rv)
	s.link.disproved()
	s.queue.Unconfirm(false)
	select {
	case s.proving.differs <- struct{}{}:
	default:
	}
}
