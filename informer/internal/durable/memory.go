package durable

// memory counts what is held of what waits to be told or acknowledged.
type memory struct {
	held    int  // tasks
	bytes   int  // of these
	blocked bool // filling waits for room
}

// hold counts what is in memory.
func (d *Handler) hold(t *task, n int) {
	if t.entry != nil {
		d.memory.held += n
		d.memory.bytes += n * t.size()
	}
}

// unblock goes on with filling once there is room, for an eighth of the bounds
// if these are large: it does not begin anew for each event.
func (d *Handler) unblock() {
	if d.memory.blocked && d.alone() {
		d.host.Backlog.Wake()
	}
	if d.memory.blocked && d.memory.held <= d.o.MaxPending-1-d.o.MaxPending/8 && d.memory.bytes < d.o.PendingBytes-d.o.PendingBytes/8 {
		d.memory.blocked = false
		d.host.Backlog.Wake()
	}
}

func (d *Handler) full() bool {
	return d.memory.held >= d.o.MaxPending || d.memory.bytes >= d.o.PendingBytes
}

// block notes that filling waits for room, and makes some if keys are stuck.
// The caller holds the mutex.
func (d *Handler) block() {
	d.memory.blocked = true
	for _, q := range d.queues.ofKey {
		if d.isStuck(q) {
			d.changed()
			d.host.Store.Flush()
			break
		}
	}
	if !d.parking.looking {
		d.parking.looking = true
		d.retryAt(nil, d.host.Clock.Now().Add(d.o.StuckAfter))
	}
}

// alone says whether nothing can be told but what is to be read from the file:
// then that must not wait for room, which what waits behind it may have taken.
// The caller holds the mutex.
func (d *Handler) alone() bool {
	return len(d.queues.loads) > 0 && d.queues.calls < d.o.Workers && len(d.queues.due) == 0 && !d.over.owed()
}
