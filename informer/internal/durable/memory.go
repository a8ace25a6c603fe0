package durable

import "sync/atomic"

// memory bounds the tasks that wait in memory to be told or acknowledged.
type memory struct {
	sharing *atomic.Int32
	held    int  // tasks
	bytes   int  // of these
	blocked bool // filling waits for room
}

// hold counts a task in with n = 1, and out with n = -1.
func (m *memory) hold(t *task, n int) {
	if t.entry != nil {
		m.held += n
		m.bytes += n * t.size()
	}
}

func (m *memory) full(o *Options) bool { return m.held >= o.MaxPending || m.bytes >= m.most(o) }

// most is the handler's part of the bytes that the informer's durable handlers share.
func (m *memory) most(o *Options) int {
	if m.sharing == nil {
		return o.PendingBytes
	}
	return max(o.PendingBytes/max(int(m.sharing.Load()), 1), 1)
}

// roomy says whether filling may go on. It requires that an eighth of the bounds is free,
// so that filling does not begin again for each event.
func (m *memory) roomy(o *Options) bool {
	return m.held <= o.MaxPending-1-o.MaxPending/8 && m.bytes < m.most(o)-m.most(o)/8
}

// block notes that filling waits for room. If keys are stuck it has a commit make
// some. The caller holds the mutex.
func (d *Handler) block() {
	d.queues.memory.blocked = true
	for _, q := range d.queues.ofKey {
		if d.queues.isStuck(q) {
			d.moveOut()
			break
		}
	}
	if !d.queues.looking {
		d.queues.looking = true
		d.queues.retries.at(d.host.Clock.Now().Add(d.o.StuckAfter), nil)
	}
}

// moveOut asks for a commit, which moves stuck keys to the file.
func (d *Handler) moveOut() {
	d.claim.Changed()
	d.host.Store.Flush()
}

// unblock has filling go on once there is room, or if nothing else can go on.
func (s *queues) unblock() {
	if s.memory.blocked && s.alone() {
		s.host.Backlog.Wake()
	}
	if s.memory.blocked && s.memory.roomy(s.o) {
		s.memory.blocked = false
		s.host.Backlog.Wake()
	}
}

// alone says whether only keys that must be read from the file can be told. Reading them
// must not wait for room, since tasks that wait behind them may take all of it. The
// caller holds the mutex.
func (s *queues) alone() bool {
	return len(s.loads) > 0 && s.calls < s.o.Workers && len(s.due) == 0
}
