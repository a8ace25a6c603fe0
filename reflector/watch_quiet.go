package reflector

import (
	"sync"
	"time"
)

// quietest is how long a watch may be quiet if no bookmarks come.
const quietest = 10 * time.Minute

// forever is how long the watch of a client-go fake may be quiet.
const forever = 100 * 365 * 24 * time.Hour

// patience is how long a watch may bring neither event nor bookmark. It learns
// whether the server sends bookmarks.
type patience struct {
	least time.Duration // Options.quietTimeout

	mu  sync.Mutex
	now time.Duration
}

func (p *patience) get() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// exceeded: the link may be dead, however open it looks. If the server sends no
// bookmarks, silence shows nothing, so the next watch may be quiet for longer.
func (p *patience) exceeded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = min(2*p.now, max(quietest, p.least))
}

// bookmarked: the server sends bookmarks.
func (p *patience) bookmarked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.least
}
