package boltstore

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
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
		marked: db.opts.Durability == DurabilityProcess,
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
