package reflector

import (
	"math"
	"sync"
	"time"
)

// linkSpeed is what the requests of one config have shown about the link in this life, and
// how much of it lists may use.
type linkSpeed struct {
	now func() time.Time

	mu      sync.Mutex
	connect time.Duration // of the last connection; negative: none was made
	answer  time.Duration // the fastest so far
	known   bool          // a page has shown how fast the link is
	fast    bool
	slowAt  time.Time     // when a page showed that it is not
	judged  chan struct{} // closed when it becomes known
	taken   [3]int64      // bytes that lists have taken of each share; of nearBytes those under way
}

func newLinkSpeed() *linkSpeed {
	return &linkSpeed{now: time.Now, connect: -1, answer: math.MaxInt64, judged: make(chan struct{})}
}

// connected: a connection was made. If it took long, it may lead elsewhere.
func (r *linkSpeed) connected(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connect, r.answer = took, math.MaxInt64; took > nearConnect && r.known {
		r.known, r.judged = false, make(chan struct{})
	}
}

func (r *linkSpeed) answered(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = min(r.answer, took)
}

// roundTrip is the shortest time from a request to its answer's first byte, 0 if unknown.
func (r *linkSpeed) roundTrip() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answer == math.MaxInt64 {
		return 0
	}
	return r.answer
}

// near says whether the link looks near or, once that is known, whether it has proved
// near and fast. judged is closed once it is known.
func (r *linkSpeed) near() (near, known bool, judged <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgive()
	if r.known {
		return r.fast, true, r.judged
	}
	return r.connect >= 0 && r.connect <= nearConnect && r.answer <= nearAnswer, false, r.judged
}

// quick says whether a round trip is short, as far as that is known, and no page has shown
// that the link is slow. If another client has made the connection, only answers show it.
func (r *linkSpeed) quick() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgive()
	if r.known && !r.fast {
		return false
	}
	if r.connect < 0 {
		return r.answer <= nearConnect
	}
	return r.connect <= nearConnect && r.answer <= nearAnswer
}

// paged: the first page of a list has brought this many bytes. A few bytes that come
// slowly show nothing.
func (r *linkSpeed) paged(size int64, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fast := float64(size) >= nearRate*took.Seconds()
	if !fast && size < probeBytes/2 {
		return
	}
	r.slowAt = r.now()
	if r.fast = fast || r.known && r.fast; !r.known {
		r.known = true
		close(r.judged)
	}
}

// forgive forgets after some minutes that a page came slowly: a busy server may have been the
// cause. It needs mu.
func (r *linkSpeed) forgive() {
	if r.known && !r.fast && r.now().Sub(r.slowAt) > postponed {
		r.known, r.judged = false, make(chan struct{})
	}
}

// share is a part of the bytes that lists may bring.
type share int

const (
	shareFar     share = iota // farBytes
	shareUnknown              // unknownBytes
	shareNear                 // nearBytes
)

// reserve takes bytes from a share, and says whether that many are left.
func (r *linkSpeed) reserve(s share, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := [...]int64{farBytes, unknownBytes, nearBytes}[s]; r.taken[s]+bytes > most {
		return false
	}
	r.taken[s] += bytes
	return true
}

// admits says whether a list may bring this many bytes before a watch is open.
func (r *linkSpeed) admits(bytes int64) bool {
	switch near, known, _ := r.near(); {
	case near && known:
		return true
	case near:
		return r.reserve(shareUnknown, bytes)
	}
	return r.reserve(shareFar, bytes)
}

// done gives back the bytes that a list over a near link has taken.
func (r *linkSpeed) done(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[shareNear] -= bytes
}
