package boltstore

// waiter is a direct write, and the work that commits it.
type waiter struct {
	w *work
	d *direct
}

// gathering is what a commit takes from the sources.
type gathering struct {
	c       *committer
	take    scope
	room    int              // bytes that the commit may still take
	awake   int              // sources that may have something and were not asked yet
	retries bool             // failed work is tried again
	retried map[*source]bool // their last work failed
	works   []*work
	waiters []waiter
	more    bool // some work is left
}

// gather takes each source's share in turn, about maxCommitBytes in all. Sources that have not
// called wake have nothing, and no share. A producer whose last work failed gets only that
// work tried again, once its backoff is over or everything is to be written.
func (c *committer) gather(take scope) (works []*work, waiters []waiter, more bool) {
	c.mu.Lock()
	g := &gathering{c: c, take: take, room: c.db.opts.maxCommitBytes, retried: map[*source]bool{},
		retries: take == scopeAll || !c.db.opts.Clock.Now().Before(c.retryAt)}
	for _, w := range c.retry {
		g.retried[w.s] = true
	}
	if g.retries {
		g.works, c.retry = c.retry, nil
	}
	stores := append([]*source(nil), c.stores...)
	if len(c.stores) > 1 {
		c.stores = append(c.stores[1:], c.stores[0])
	}
	c.mu.Unlock()
	for _, s := range stores {
		if s.writer.awake.Load() {
			g.awake++
		}
	}
	for _, s := range stores {
		if g.room <= 0 {
			g.more = true
			break
		}
		g.from(s)
	}
	return g.works, g.waiters, g.more
}

// from takes a source's share: waiting writes, then changes.
func (g *gathering) from(s *source) {
	share := max(g.room/max(g.awake, 1), 1)
	if s.writer.awake.Swap(false) {
		g.awake--
	}
	if g.retried[s] { // its events wait behind the failed ones
		s.writer.awake.Store(true)
		g.more = g.more || g.retries
		return
	}
	writes, size := s.writer.takeWrites(share)
	for _, w := range writes {
		g.works, g.waiters = append(g.works, w.w), append(g.waiters, w)
	}
	g.room -= size
	if size >= share {
		g.left(s)
	}
	if g.c.ending != nil && g.c.ending[s] >= lastBytes {
		return
	}
	p := s.writer.fedBy()
	if b := g.batch(s, p, max(share-size, 1)); b != nil {
		b.at, b.by = g.c.db.device.at(b.Confirmed)
		g.works = append(g.works, &work{s: s, b: b, p: p})
		g.room -= b.memory()
		if g.c.ending != nil {
			g.c.ending[s] += b.memory()
		}
	}
}

// batch takes about max bytes of a producer's changes, nil if nothing is to be committed. Told
// marks, acknowledgements and notes of claims ride on a batch, which may be empty.
func (g *gathering) batch(s *source, p Producer, max int) *Batch {
	rides := g.take != scopeChanges && (s.handlers.toldChanged() || s.handlers.waiting() || s.claimDue()) ||
		s.handlers.owe()
	var b *Batch
	if p != nil {
		var rest bool
		if b, rest = p.Take(max, g.take == scopeAll || rides || g.take == scopeDue && g.c.bookmarkDue(s)); rest {
			g.left(s)
		}
	}
	if b == nil && rides {
		return &Batch{}
	}
	return b
}

// left notes that a source has more than this commit takes.
func (g *gathering) left(s *source) {
	g.more = true
	s.writer.awake.Store(true)
}

// takeWrites takes the direct writes that wait, up to max bytes of them and one that
// exceeds max. They share a commit.
func (w *writer) takeWrites(max int) (writes []waiter, size int) {
	for size < max {
		d := w.take()
		if d == nil {
			break
		}
		writes = append(writes, waiter{&work{s: w.s, b: d.b}, d})
		size += d.b.memory()
	}
	return writes, size
}
