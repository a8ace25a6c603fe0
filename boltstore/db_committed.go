package boltstore

import "sync"

// Committed returns a channel that is closed once readers can see the next commit to a
// source, which may be claimed now or later. The channel is also closed when a claim of
// the source ends, and at Close. Take it before reading.
func (db *DB) Committed(src Source) <-chan struct{} {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	if db.commits.closed {
		return closedChan
	}
	id := src.ID()
	ch := db.commits.of[id]
	if ch == nil {
		ch = make(chan struct{})
		if db.commits.of == nil {
			db.commits.of = map[string]chan struct{}{}
		}
		db.commits.of[id] = ch
	}
	return ch
}

// commits has the channels on which readers wait for a commit, by source id.
type commits struct {
	mu     sync.Mutex
	of     map[string]chan struct{}
	closed bool
}

var closedChan = func() chan struct{} { ch := make(chan struct{}); close(ch); return ch }()

func (db *DB) tellCommitted(id string) {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	if ch := db.commits.of[id]; ch != nil {
		close(ch)
		delete(db.commits.of, id)
	}
}

func (db *DB) tellClosed() {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	db.commits.closed = true
	for id, ch := range db.commits.of {
		close(ch)
		delete(db.commits.of, id)
	}
}
