package boltstore

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// maxLead bounds how much of a commit's own time counts towards the next window. With a
// long window the number of writes matters, not milliseconds.
const maxLead = 10 * time.Millisecond

// largeCommit is the size in bytes of a commit after which a whole window passes.
// Changes that come that fast gain more from larger commits, which need fewer pages and
// syncs.
const largeCommit = 1 << 20

// lastBytes is how much of a source's changes is committed once the goroutine is to end. A
// queue has less pending and held back; events that go on coming would keep Close waiting.
// The next life reads the rest from its resume point.
const lastBytes = 6 << 20

// lookAgain is how long after a failed direct write the committer looks whether commits
// succeed again.
const lookAgain = 5 * time.Second

// committer gathers the changes of all sources into transactions. A change to an idle
// file is committed at once; changes to a busy one are gathered for a window. Its
// goroutine runs from the first claim to the last release.
type committer struct {
	db     *DB
	wake   chan struct{} // something is pending
	urgent chan struct{} // changes that do not wait for the window
	flush  chan struct{} // write bookmarks, told marks and acknowledgements, too
	ended  chan struct{} // closed once nothing more will be committed

	lifecycle sync.Mutex // held while the goroutine begins or ends; taken before the other locks
	running   *running   // nil while there is none
	stopped   bool

	// ending is how many bytes each source's producer has handed over since the goroutine
	// is to end, nil before. Only the goroutine uses it.
	ending map[*source]int

	busy sync.Mutex // held from taking work until it is committed, or kept for another try

	mu      sync.Mutex
	stores  []*source // attached, in the order of their turns
	retry   []*work   // failed work, tried again before anything else of its source
	retryAt time.Time // when
	backoff *wait.Backoff
	lastErr error
	owed    bool      // lastErr concerns work that is retried, not only direct writes
	failing time.Time // when lastErr was first not nil
	relists map[*source]*relistFailure
	lost    error // why changes of a source that has ended were not committed, unless a commit has succeeded since
}

// running is a goroutine of the committer.
type running struct{ quit, ended chan struct{} }

func newCommitter(db *DB) *committer {
	return &committer{
		db:   db,
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), flush: make(chan struct{}, 1),
		ended:   make(chan struct{}),
		relists: map[*source]*relistFailure{},
	}
}

// begin and end need lifecycle.
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
	if c.lastErr != nil {
		return c.lastErr
	}
	_, err := c.relistsFail(c.db.opts.Clock.Now())
	return err
}

// stop commits what is pending, once, and ends the committer for good.
func (c *committer) stop() error {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.end()
	if !c.stopped {
		c.stopped = true
		close(c.ended)
		c.probe() // it may have ended before
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.lastErr, c.lost)
}

func (c *committer) attach(s *source) {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.mu.Lock()
	c.stores = append(c.stores, s)
	c.mu.Unlock()
	c.begin()
}

// detach returns once no work of the store is under way and none can begin. The
// goroutine ends with the last store.
func (c *committer) detach(s *source) {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	if c.remove(s) {
		c.end()
	}
}

// remove reports whether no store is left.
func (c *committer) remove(s *source) bool {
	c.busy.Lock()
	defer c.busy.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.relists, s)
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
				c.lastErr, c.backoff = nil, nil // only told marks and acknowledgements, which Release writes
			}
			break
		}
	}
	if c.owed && len(c.retry) == 0 { // work of a source that ends is not tried again
		c.owed, c.lost = false, c.lastErr
	}
	if len(c.stores) > 0 {
		return false
	}
	c.lastErr, c.backoff = nil, nil // nothing is committed, and nobody looks again
	return true
}

// awaitWork returns once all work that was under way before the call has ended.
func (c *committer) awaitWork() {
	c.busy.Lock()
	defer c.busy.Unlock()
}

// run commits what comes, until r is told to quit. Then it commits once all that is pending.
func (c *committer) run(r *running) {
	defer close(r.ended)
	clk := c.db.opts.Clock
	flush := clk.NewTimer(c.db.opts.FlushInterval)
	defer flush.Stop()
	// opened is when the window until the next commit began. It lies before the end of the
	// last commit, so a change that came during that commit waits about one window. After
	// a large commit it is the end of that commit.
	var opened time.Time
	var take scope
	for final, more := false, false; !final; { // more: the last commit has left some of what it was to take
		rest := take
		if take, final = c.await(r, flush.C(), opened, more); more {
			take = max(take, rest)
		}
		began := clk.Now()
		var size int
		var worked bool
		size, worked, more = c.round(take)
		for final && more {
			_, _, more = c.round(take)
		}
		if worked {
			now := clk.Now()
			if opened = now; size < largeCommit {
				opened = began.Add(-min(now.Sub(began), c.db.opts.Window/2, maxLead))
			}
			c.db.keeper.committed(now)
			c.db.commit.lookAtPath(now)
		} else {
			c.probe()
		}
		if take != scopeChanges && !more {
			_ = c.db.AtPath() // it logs what it finds
			flush.Reset(c.db.opts.FlushInterval)
		}
	}
	c.ending = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		s.writer.fail(ErrClosed)
	}
}

// await returns once a commit is due, and says how much that takes. It waits for the end of
// the window that began at opened, unless the last commit has left more. final says that
// the goroutine is to end.
func (c *committer) await(r *running, flush <-chan time.Time, opened time.Time, more bool) (take scope, final bool) {
	clk := c.db.opts.Clock
	var retry <-chan time.Time
	if d := c.retryIn(); d > 0 {
		retry = clk.After(d)
	}
	var again <-chan struct{}
	if more {
		again = closedChan
	}
	select {
	case <-again:
	case <-c.wake:
		if left := c.db.opts.Window - clk.Since(opened); left > 0 && !more {
			select {
			case <-clk.After(left):
			case <-retry:
			case <-c.urgent:
			case <-c.flush:
				take = scopeAll
			case <-r.quit:
			}
		}
	case <-retry:
	case <-c.flush:
		take = scopeAll
	case <-flush:
		take = scopeDue
	case <-r.quit:
		take, final = scopeAll, true
		c.ending = map[*source]int{}
	}
	select {
	case <-flush: // this commit writes everything that is due
		take = max(take, scopeDue)
	default:
	}
	for _, taken := range []chan struct{}{c.wake, c.urgent} { // the changes that they announced are taken now
		select {
		case <-taken:
		default:
		}
	}
	return take, final
}

// retryIn is how long the committer waits before it tries again what failed. It is 0 if
// nothing did.
func (c *committer) retryIn() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.retry) == 0 && c.lastErr != nil && !c.owed:
		return lookAgain
	case len(c.retry) == 0 || c.backoff == nil:
		return 0
	}
	return max(c.retryAt.Sub(c.db.opts.Clock.Now()), time.Millisecond)
}
