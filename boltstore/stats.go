package boltstore

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/claimants"
)

// Stats say what a DB has done since Open, and what it is doing. They need no access to
// the file, so they are available while the disk hangs and after Close. Package
// informer/metrics shows them to Prometheus.
type Stats struct {
	// Transactions has how long each write transaction took, sync included, in seconds.
	Transactions Histogram
	// Changes and ChangeBytes have the size of each commit of changes, those of lists included: how
	// many there were, and how many bytes they take encoded.
	Changes, ChangeBytes Histogram
	// Written is about how many bytes were written: the pages of all transactions.
	Written uint64
	// Failed counts failed tries to commit. Failing is how long all commits have failed,
	// or the writes of a source's relist, whichever is longer. It is 0 if the last ones
	// succeeded. [DB.Err] says why they fail.
	Failed  uint64
	Failing time.Duration
	// Writing is how long the write transaction under way has taken so far, 0 if there is
	// none. It grows if the disk has stopped answering.
	Writing time.Duration
	// ObjectMemory is about how much memory decoded objects take, in bytes, and
	// ObjectMemoryLimit how much they may take; see [Options.ObjectMemory].
	ObjectMemory, ObjectMemoryLimit int64
}

// Histogram counts observations in buckets.
type Histogram struct {
	Bounds []float64 // upper bounds of the buckets, inclusive, rising
	Counts []uint64  // one for each bucket, and one for observations above all bounds
	Sum    float64   // of all observations
}

// Count is how many observations there were.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

func (h *Histogram) observe(v float64) {
	if h.Counts == nil {
		h.Counts = make([]uint64, len(h.Bounds)+1)
	}
	i := 0
	for i < len(h.Bounds) && v > h.Bounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += v
}

func (h Histogram) clone() Histogram {
	h.Bounds, h.Counts = slices.Clone(h.Bounds), slices.Clone(h.Counts)
	if h.Counts == nil {
		h.Counts = make([]uint64, len(h.Bounds)+1)
	}
	return h
}

// Bounds of the histograms. A commit of a few changes takes 0.1 ms without a sync, and
// the time of a sync with one.
var (
	secondsBounds = []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30}
	changesBounds = []float64{1, 3, 10, 30, 100, 300, 1000, 3000, 10000}
	bytesBounds   = []float64{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

// counters count for a DB's Stats. Each transaction takes the lock once or twice.
type counters struct {
	clock clock.PassiveClock
	start time.Time
	began atomic.Int64 // when the write transaction under way began: ns since start, and one; 0: there is none

	mu                      sync.Mutex
	seconds, changes, sizes Histogram
	written, failed         uint64
}

func newCounters(c clock.PassiveClock) *counters {
	return &counters{clock: c, start: c.Now(), seconds: Histogram{Bounds: secondsBounds},
		changes: Histogram{Bounds: changesBounds}, sizes: Histogram{Bounds: bytesBounds}}
}

// begin notes that a write transaction begins, and end that it has ended.
func (c *counters) begin() (began time.Time) {
	began = c.clock.Now()
	c.began.Store(max(int64(began.Sub(c.start)), 0) + 1)
	return began
}

func (c *counters) end(began time.Time, tx *bolt.Tx, err error) {
	c.began.Store(0)
	if err != nil {
		return
	}
	took, st := c.clock.Since(began), tx.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seconds.observe(took.Seconds())
	pages, bytes := st.GetPageCount(), st.GetPageAlloc()
	c.written += uint64(bytes + bytes/max(pages, 1)) // and a meta page
}

// committed notes the size of a commit of changes. failedTry notes one that failed.
func (c *counters) committed(changes, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes.observe(float64(changes))
	c.sizes.observe(float64(size))
}

func (c *counters) failedTry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed++
}

// Stats returns what the DB has done and is doing.
func (db *DB) Stats() Stats {
	c := db.h.counters
	now := c.clock.Now()
	st := Stats{}
	if began := c.began.Load(); began > 0 {
		st.Writing = max(now.Sub(c.start)-time.Duration(began-1), 1)
	}
	if db.commit != nil {
		st.Failing = db.commit.failingFor(now)
	}
	db.objects.mu.Lock()
	st.ObjectMemory, st.ObjectMemoryLimit = db.objects.used, max(db.objects.budget, 0)
	db.objects.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Transactions, st.Changes, st.ChangeBytes = c.seconds.clone(), c.changes.clone(), c.sizes.clone()
	st.Written, st.Failed = c.written, c.failed
	return st
}

// failingFor is how long commits, or the writes of a relist, have failed, 0 if the last
// ones succeeded.
func (c *committer) failingFor(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	lasts, _ := c.relistsFail(now)
	if c.lastErr != nil {
		lasts = max(lasts, now.Sub(c.failing), 1)
	}
	return lasts
}

func init() {
	claimants.Of = func(db any) (all []any) {
		stores := db.(*DB).claims.all()
		slices.SortFunc(stores, func(a, b *source) int { return strings.Compare(a.id, b.id) })
		for _, s := range stores {
			if u := s.life.user.Load(); u != nil {
				all = append(all, *u)
			}
		}
		return all
	}
}

// SetUser names the user of the claim, such as an informer, for metrics and health
// checks.
func (s *Claimed) SetUser(user any) { s.life.user.Store(&user) }
