package boltstore

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Committed returns a channel that is closed once readers can see the next commit to a
// source, which may be claimed now or later. The channel is also closed when a claim of
// the source ends, when another one of its type is claimed or first listed, and at Close. Take
// it before reading.
func (db *DB) Committed(src Source) <-chan struct{} {
	db.commits.mu.Lock()
	defer db.commits.mu.Unlock()
	if db.commits.closed {
		return closedChan
	}
	id := src.ID()
	next, ok := db.commits.of[id]
	if !ok {
		next = nextCommit{make(chan struct{}), schema.GroupResource{Group: src.Group, Resource: src.Resource}}
		if db.commits.of == nil {
			db.commits.of = map[string]nextCommit{}
		}
		db.commits.of[id] = next
	}
	return next.told
}

// commits has the channels on which readers wait for a commit, by source id.
type commits struct {
	mu     sync.Mutex
	of     map[string]nextCommit
	closed bool
}

// nextCommit is what readers of one source wait for.
type nextCommit struct {
	told chan struct{}
	kind schema.GroupResource
}

var closedChan = func() chan struct{} { ch := make(chan struct{}); close(ch); return ch }()

func (n *commits) tell(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if next, ok := n.of[id]; ok {
		close(next.told)
		delete(n.of, id)
	}
}

// tellKept tells readers of all sources of a type, in any version: a source that was just
// claimed, or listed for the first time, may answer them from now on.
func (n *commits) tellKept(src Source) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, next := range n.of {
		if next.kind == (schema.GroupResource{Group: src.Group, Resource: src.Resource}) {
			close(next.told)
			delete(n.of, id)
		}
	}
}

func (n *commits) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for id, next := range n.of {
		close(next.told)
		delete(n.of, id)
	}
}
