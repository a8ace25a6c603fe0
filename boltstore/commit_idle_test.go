package boltstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

// queued is a producer with changes of which it hands over as many bytes as are asked for,
// as an informer's queue does.
type queued struct {
	mu      sync.Mutex
	changes []*Change
	left    int
	done    chan struct{}
}

func (p *queued) Take(most int, _ bool) (*Batch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.changes) == 0 {
		return nil, false
	}
	b := &Batch{}
	for size := 0; len(p.changes) > 0 && size < most; p.changes = p.changes[1:] {
		b.Changes = append(b.Changes, p.changes[0])
		size += p.changes[0].Memory()
	}
	return b, len(p.changes) > 0
}

func (p *queued) Committed(entries []*Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left > 0 {
		if p.left -= len(entries); p.left == 0 {
			close(p.done)
		}
	}
}

// TestIdleSourcesTakeNoShare: changes that fit into one commit are committed together, however
// many other sources are claimed that have none.
func TestIdleSourcesTakeNoShare(t *testing.T) {
	for _, turn := range []int{0, 250, 499} {
		t.Run(fmt.Sprint("turn ", turn), func(t *testing.T) {
			db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
			var busy *Claimed
			for i := range 500 {
				s := claimTest(t, db, Claim{Source: inNamespace(fmt.Sprint("ns", i))})
				if i == turn {
					busy = s
					continue
				}
				s.Feed.Attach(idle{})
			}
			p := &queued{done: make(chan struct{})}
			for i := range 100 {
				c, err := busy.Feed.Prepare(cache.Added,
					configMap("a", fmt.Sprint("o", i), i+1, map[string]string{"k": strings.Repeat("x", 4<<10)}))
				if err != nil {
					t.Fatal(err)
				}
				p.changes = append(p.changes, c)
			}
			p.left = len(p.changes)
			before := transactions(t, db)
			busy.Feed.Attach(p)
			busy.wake(false)
			<-p.done
			if n := transactions(t, db) - before; n > 2 {
				t.Errorf("%d transactions", n)
			}
		})
	}
}

// bookmarked is a producer with an event now and then, and always a bookmark.
type bookmarked struct {
	every  time.Duration
	last   time.Time
	events int
}

func (p *bookmarked) Take(_ int, bookmark bool) (*Batch, bool) {
	event := time.Since(p.last) >= p.every
	if event {
		p.last = time.Now()
		p.events++
	}
	if event || bookmark {
		return &Batch{ResourceVersion: fmt.Sprint(1 + p.events)}, false
	}
	return nil, false
}

func (p *bookmarked) Committed([]*Entry) {}

// TestBookmarksShareCommits: bookmarks of sources whose events come at different times share
// commits, so that a file of many quiet sources is seldom written.
func TestBookmarksShareCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
		defer closeTest(t, db)
		var all []*Claimed
		var producers []*bookmarked
		for i := range 40 {
			s := claimTest(t, db, Claim{Source: inNamespace(fmt.Sprint("ns", i))})
			p := &bookmarked{every: 5 * time.Hour, last: time.Now().Add(-time.Duration(i) * 437 * time.Second)}
			s.Feed.Attach(p)
			all, producers = append(all, s), append(producers, p)
		}
		before := db.Stats().Transactions.Count()
		// on the bubble's clock, which takes no time: a bookmark that is written without need
		// passes for none if it comes later; no signal exists for one that never comes
		time.Sleep(10 * time.Hour) // on the bubble's clock, see above
		synctest.Wait()
		events := 0
		for _, p := range producers {
			events += p.events
		}
		// Bookmarks are written each five minutes, half of the sources at a time, and
		// claims are noted each hour.
		if n := int(db.Stats().Transactions.Count() - before); events < 76 || n > events+10*13 {
			t.Errorf("%d transactions, %d events", n, events)
		}
		for _, s := range all {
			s.Release()
		}
	})
}
