package boltstore

import (
	"errors"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Producer hands a source's changes to the committer.
type Producer interface {
	// Take hands over pending changes in order, about max bytes of them, and
	// says whether more are left. A nil batch means that nothing is pending.
	// Only when lazy may it be a batch without changes, for a bookmark: then the
	// source is written anyway, or has not been for long.
	Take(max int, lazy bool) (b *Batch, more bool)
	// Committed is called in commit order, once a batch is in the file. It must
	// not block.
	Committed(entries []*Entry)
}

// Batch is what one source adds to a transaction.
type Batch struct {
	Changes []*Change
	// ResourceVersion is the resume point once the changes are stored: the
	// version of the last one of them, or of a bookmark after it. "" leaves it.
	ResourceVersion string
	// Confirmed is when the server last said that this was its state, zero to
	// leave it.
	Confirmed time.Time

	at int64 // what of Confirmed is kept
	by *moment

	unjournaled bool
	seen        *string // what LastStoreSyncResourceVersion is then; nil leaves it
}

func (b *Batch) size() (n int) {
	for _, c := range b.Changes {
		n += c.Size()
	}
	return n
}

func (b *Batch) memory() (n int) {
	for _, c := range b.Changes {
		n += c.Memory()
	}
	return n
}

// work is a batch on its way into the file.
type work struct {
	s       *Store
	b       *Batch
	p       Producer
	meta    *sourceMeta
	entries []*Entry
	// positions is to be called once they are visible, if not nil.
	positions func()
	// landed: readers see it, but the disk reported an error. It counts as
	// committed once a commit after it succeeds.
	landed bool
}

// direct is a write that its caller waits for.
type direct struct {
	b    *Batch
	done chan error
}

// what says what a commit takes along, besides changes.
type what int

const (
	changes what = iota // nothing
	due                 // marks and positions, and bookmarks with them or once they are due
	all                 // everything
)

// maxLead is how much earlier than a window after the last one a commit begins
// at most, for the time that it takes: with a long window writes count, not
// milliseconds.
const maxLead = 10 * time.Millisecond

// largeCommit is how many bytes of changes have a whole window follow them:
// where they come faster than that, what is spared is time. The more a commit
// gathers the fewer pages and syncs there are for each.
const largeCommit = 1 << 20

// committer gathers the changes of all sources into transactions. Leading
// edge: a change to an idle file is committed at once, changes to a busy one
// are gathered for a window. It has a goroutine from the first claim to the last
// release.
type committer struct {
	db     *DB
	wake   chan struct{} // something is pending
	full   chan struct{} // a producer is full: do not wait for the window
	flush  chan struct{} // write bookmarks and marks, too
	ended  chan struct{} // closed once nothing will be committed any more
	marked bool          // the header says that the file is in use; guarded by the handle's writeMu

	turn    sync.Mutex // held while the goroutine begins or ends; before the others
	running *running   // nil while there is none
	stopped bool

	busy sync.Mutex // held from taking work to settling it

	mu      sync.Mutex
	stores  []*Store // attached, in turn
	retry   []*work  // failed, to be tried again before anything else of their sources
	backoff *wait.Backoff
	lastErr error
}

// running is a goroutine of the committer.
type running struct{ quit, ended chan struct{} }

func newCommitter(db *DB) *committer {
	return &committer{
		db:   db,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), flush: make(chan struct{}, 1),
		ended:  make(chan struct{}),
		marked: db.opts.Durability == Process,
	}
}

// begin and end are for who holds turn.
func (c *committer) begin() {
	if c.running == nil && !c.stopped {
		c.running = &running{make(chan struct{}), make(chan struct{})}
		go c.run(c.running)
	}
}

func (c *committer) end() {
	if c.running != nil {
		close(c.running.quit)
		<-c.running.ended
		c.running = nil
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (c *committer) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastErr
}

// stop commits what is pending, once, and ends the committer.
func (c *committer) stop() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.end()
	if !c.stopped {
		c.stopped = true
		close(c.ended)
	}
	return c.err()
}

func (c *committer) attach(s *Store) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	c.stores = append(c.stores, s)
	c.mu.Unlock()
	c.begin()
}

// detach returns once no work of the store is under way, and none will be. With
// the last one the goroutine ends.
func (c *committer) detach(s *Store) {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.remove(s) {
		c.end()
	}
}

// remove says whether no store is left.
func (c *committer) remove(s *Store) bool {
	c.busy.Lock()
	defer c.busy.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, x := range c.stores {
		if x == s {
			c.stores = append(c.stores[:i:i], c.stores[i+1:]...)
			break
		}
	}
	for i, w := range c.retry {
		if w.s == s {
			c.retry = append(c.retry[:i:i], c.retry[i+1:]...)
			if len(c.retry) == 0 && len(w.b.Changes) == 0 {
				c.lastErr, c.backoff = nil, nil // only marks, which Release writes
			}
			break
		}
	}
	return len(c.stores) == 0
}

// settled returns once no work is under way that was begun before.
func (c *committer) settled() {
	c.busy.Lock()
	defer c.busy.Unlock()
}

func (c *committer) run(r *running) {
	defer close(r.ended)
	clk := c.db.opts.Clock
	flush := clk.NewTimer(c.db.opts.FlushInterval)
	defer flush.Stop()
	// from is when the window began that is to pass until the next commit: so
	// long before the last one's end that a change that came during it is in the
	// file a window later. After a large one it is the end.
	var from time.Time
	for final := false; !final; {
		var again <-chan time.Time
		if d := c.retryIn(); d > 0 {
			again = clk.After(d)
		}
		take := changes
		select {
		case <-c.wake:
			if left := c.db.opts.Window - clk.Since(from); left > 0 {
				select {
				case <-clk.After(left):
				case <-again:
				case <-c.full:
				case <-c.flush:
					take = all
				case <-r.quit:
				}
			}
		case <-again:
		case <-c.flush:
			take = all
		case <-flush.C():
			take = due
		case <-r.quit:
			take, final = all, true
		}
		select {
		case <-flush.C(): // what is due goes along
			take = max(take, due)
		default:
		}
		for _, taken := range []chan struct{}{c.wake, c.full} { // with what was pending by now
			select {
			case <-taken:
			default:
			}
		}
		began := clk.Now()
		if size, any := c.commitAll(take); any {
			now := clk.Now()
			if from = now; size < largeCommit {
				from = began.Add(-min(now.Sub(began), c.db.opts.Window/2, maxLead))
			}
			c.db.keeper.committed(now)
			c.db.lookAfterCommit(now)
		}
		if take != changes {
			_ = c.db.AtPath() // which notes it
			flush.Reset(c.db.opts.FlushInterval)
		}
	}
	c.failDirect(ErrClosed)
}

func (c *committer) retryIn() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.retry) == 0 || c.backoff == nil {
		return 0
	}
	return max(c.backoff.Step(), time.Millisecond)
}

// commitAll commits rounds of work until nothing more is pending, and says
// whether it committed anything, and how many bytes of changes.
func (c *committer) commitAll(take what) (size int, any bool) {
	for {
		n, worked, more := c.round(take)
		size, any = size+n, any || worked
		if !worked || !more {
			return size, any
		}
	}
}

// round takes work, commits it and settles what failed.
func (c *committer) round(take what) (size int, worked, more bool) {
	c.busy.Lock()
	defer c.busy.Unlock()
	works, waiters, more := c.gather(take)
	if len(works) == 0 {
		return 0, false, false
	}
	for _, w := range works {
		for _, ch := range w.b.Changes {
			w.s.refresh(ch)
		}
		size += w.b.size()
	}
	failed := c.commitRound(works)
	for _, w := range waiters {
		w.d.done <- failed[w.w]
	}
	return size, true, !c.settle(works, failed) && more
}

type waiter struct {
	w *work
	d *direct
}

// gather takes each source's share in turn, at most MaxCommitBytes in all. A
// source whose last work failed has that tried again and nothing else.
func (c *committer) gather(take what) (works []*work, waiters []waiter, more bool) {
	c.mu.Lock()
	works = c.retry
	c.retry = nil
	stores := append([]*Store(nil), c.stores...)
	if len(c.stores) > 1 {
		c.stores = append(c.stores[1:], c.stores[0])
	}
	c.mu.Unlock()
	retried := map[*Store]bool{}
	for _, w := range works {
		retried[w.s] = true
	}
	room := c.db.opts.MaxCommitBytes
	for i, s := range stores {
		if retried[s] {
			more = true // once it succeeds, what waits behind it
			continue
		}
		if room <= 0 {
			more = true
			break
		}
		share := max(room/(len(stores)-i), 1)
		d, p := s.take()
		switch {
		case d != nil:
			w := &work{s: s, b: d.b}
			works, waiters = append(works, w), append(waiters, waiter{w, d})
			room -= d.b.memory()
			more = true // the producer had no turn
		case p != nil:
			marks := take != changes && (s.toldChanged() || s.positionsChanged() || s.claimDue())
			b, left := p.Take(share, take == all || marks || take == due && s.bookmarkDue())
			more = more || left
			if b == nil && marks {
				b = &Batch{}
			}
			if b != nil {
				b.at, b.by = c.db.device.at(b.Confirmed)
				works = append(works, &work{s: s, b: b, p: p})
				room -= b.memory()
			}
		}
	}
	return works, waiters, more
}

// commitRound commits works in one transaction or, should that fail, each
// alone, and returns the errors of those that failed.
func (c *committer) commitRound(works []*work) map[*work]error {
	failed := map[*work]error{}
	err := c.try(works)
	if err != nil && len(works) > 1 {
		for _, w := range works {
			if err := c.try([]*work{w}); err != nil {
				failed[w] = err
			}
		}
	} else if err != nil {
		failed[works[0]] = err
	}
	return failed
}

func (c *committer) try(works []*work) error {
	err := c.db.h.update(func(tx *bolt.Tx) error {
		if !c.marked {
			if err := c.db.putHeader(tx, false); err != nil {
				return err
			}
		}
		for _, w := range works {
			if err := w.apply(tx); err != nil {
				return err
			}
		}
		return nil
	}, func() {
		c.marked = true
		for _, w := range works {
			w.landed = true
			w.s.setMeta(w.meta)
			w.s.setSeen(w.b.seen)
			w.s.committed = c.db.opts.Clock.Now()
			if w.positions != nil {
				w.positions()
				w.positions = nil
			}
		}
	})
	if err != nil {
		return err
	}
	for _, w := range works {
		if w.p != nil {
			w.p.Committed(w.entries)
		}
	}
	return nil
}

// settle keeps what failed for another try, says whether there is any, and notes
// the file's health.
func (c *committer) settle(works []*work, failed map[*work]error) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, w := range works {
		err, bad := failed[w]
		if !bad {
			continue
		}
		errs = append(errs, err)
		if w.p != nil {
			c.retry = append(c.retry, w)
		}
	}
	err := errors.Join(errs...)
	switch {
	case err == nil && c.lastErr != nil:
		c.db.log().Info("Commits succeed again", "file", c.db.path)
		c.backoff = nil
	case err != nil && c.lastErr == nil:
		c.db.log().Error(err, "Commit failed, it will be retried until it succeeds; nothing is lost", "file", c.db.path)
		c.backoff = &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	}
	c.lastErr = err
	return len(c.retry) > 0
}

// failDirect answers writers that came too late.
func (c *committer) failDirect(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		s.failDirect(err)
	}
}
