package serve

import (
	"crypto/sha256"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// question is a hash of a question to the server.
type question [sha256.Size]byte

// accepted has what the server has allowed. Users share the room: when it is full, the
// user with most entries loses the least recently used one. So a user with many entries
// never pushes out those of others.
type accepted struct {
	room int

	mu    sync.Mutex
	whose map[question]string
	of    map[string]*simplelru.LRU[question, review] // by user
}

func newAccepted(room int) *accepted {
	return &accepted{room: room, whose: map[question]string{}, of: map[string]*simplelru.LRU[question, review]{}}
}

func (a *accepted) get(q question) (review, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	user, ok := a.whose[q]
	if !ok {
		return review{}, false
	}
	return a.of[user].Get(q)
}

func (a *accepted) remove(q question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(q)
}

// drop needs mu.
func (a *accepted) drop(q question) {
	user, ok := a.whose[q]
	if !ok {
		return
	}
	delete(a.whose, q)
	a.of[user].Remove(q)
	if a.of[user].Len() == 0 {
		delete(a.of, user)
	}
}

func (a *accepted) add(user string, q question, r review) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(q)
	if len(a.whose) >= a.room {
		var most *simplelru.LRU[question, review]
		for _, of := range a.of {
			if most == nil || of.Len() > most.Len() {
				most = of
			}
		}
		oldest, _, _ := most.GetOldest() // it has one
		a.drop(oldest)
	}
	of := a.of[user]
	if of == nil {
		of, _ = simplelru.NewLRU[question, review](a.room, nil) // the room is above 0
		a.of[user] = of
	}
	of.Add(q, r)
	a.whose[q] = user
}
