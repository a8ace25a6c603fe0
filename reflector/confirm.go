package reflector

import (
	"math"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// Confirm says what proves, after a restart, that nothing was missed, where the
// server's version has moved on.
type Confirm int

const (
	// ConfirmAuto is ConfirmList once in a life, while HasSynced waits, where that is
	// cheap: the list has less than 64 KB, by the size that was last seen, or the
	// link is near and fast and the list will be there before a bookmark. Otherwise,
	// and after an outage, it is ConfirmBookmark.
	ConfirmAuto Confirm = iota
	// ConfirmBookmark waits for a bookmark, one to two seconds. It sends the fewest
	// bytes.
	ConfirmBookmark
	// ConfirmList lists the objects' metadata beside the watch, and compares. What
	// comes first counts, list or bookmark. Clients whose config WrapConfig has not
	// seen list whole objects.
	ConfirmList
)

const (
	// bookmarkAfter is how long a bookmark takes, mostly: the server sends it in the
	// second that begins one second after a watch of 3 s has.
	bookmarkAfter = 1200 * time.Millisecond
	// calm is how long a watch brings nothing before a list begins: what was missed
	// comes at once, and may reach the stated version.
	calm = 5 * time.Millisecond
	// farBytes is what all lists of a config may bring over a link that has not shown to
	// be near and fast. With headers it is less than 64 KB.
	farBytes = 60 << 10
	// littleBytes is the first page over a link that may be slow, probeBytes that over
	// one that looks near. Only its end shows how fast the link is.
	littleBytes, probeBytes = 8 << 10, 16 << 10
	// nearBytes is how much a list may bring over a near link, and all lists of a
	// config that are under way.
	nearBytes = 64 << 20
	// provingPage is the largest page of a list that proves, which is in memory.
	provingPage = 2 << 20
	// mostLacking is how many objects of a list may be left to the watch.
	mostLacking = 5000
)

// A link looks near that takes no longer than nearConnect to connect, and nearAnswer to
// answer a question. It is fast if a page has brought nearRate bytes a second.
const nearConnect, nearAnswer, nearRate = 10 * time.Millisecond, 250 * time.Millisecond, 256 << 10

// proving decides whether a list is to confirm.
type proving struct {
	mode Confirm

	mu     sync.Mutex
	tried  bool // in this life
	failed bool // a request has, or the server does not give what is needed
}

// failure: the server could not be reached, or refused. All who have waited through
// its outage ask at once when it is back, and can wait for a bookmark.
func (p *proving) failure() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
}

// proves says whether a list is to confirm, beside the watch that is being opened.
func (s *ListerWatcher) proves() bool {
	p := &s.proving
	if p.mode == ConfirmBookmark || !ordered(s.queue) || !s.store.ByMetadata() || s.store.Err() != nil || s.store.UnstoredObjects() > 0 {
		return false
	}
	if p.mode == ConfirmList {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tried || p.failed || cache.IsDone(s.queue) || s.requests.server == "" || s.status.hasRelisted() {
		return false
	}
	p.tried = true
	return true
}

// metadataSize is how many bytes the metadata of an object takes in a list, as last
// seen or as its record suggests, and of all objects, uncompressed.
func metadataSize(store *boltstore.Claimed) (each, all int64) {
	st := store.State()
	n := int64(max(st.Objects, 1))
	if each = int64(store.MetadataSize()); each == 0 {
		each = int64(st.Bytes)*5/4/n + 128
	}
	return each, each * int64(st.Objects)
}

// sentAs is how many bytes of so many are sent where they may be compressed.
func sentAs(unpacked int64) int64 {
	if unpacked < compressed {
		return unpacked
	}
	return unpacked / 5
}

// road is what the requests of one config have shown of the link in this life, and
// what lists may take of it.
type road struct {
	now func() time.Time

	mu      sync.Mutex
	connect time.Duration // of the last connection; negative: none was made
	answer  time.Duration // the fastest
	known   bool          // a page has shown how fast the link is
	fast    bool
	judged  chan struct{} // closed when it becomes known
	far     int64         // bytes that lists have taken of farBytes
	under   int64         // bytes of lists under way over a near link
}

func newRoad() *road {
	return &road{now: time.Now, connect: -1, answer: math.MaxInt64, judged: make(chan struct{})}
}

// connected: a connection was made. One that took long may lead elsewhere.
func (r *road) connected(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connect, r.answer = took, math.MaxInt64; took > nearConnect && r.known {
		r.known, r.judged = false, make(chan struct{})
	}
}

func (r *road) answered(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = min(r.answer, took)
}

// near says whether the link looks near, or, where that is known, whether it has shown
// to be near and fast. judged is closed once it is known.
func (r *road) near() (near, known bool, judged <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known {
		return r.fast, true, r.judged
	}
	return r.connect >= 0 && r.connect <= nearConnect && r.answer <= nearAnswer, false, r.judged
}

// paged: the first page of a list has brought so many bytes. Few that come slowly show
// nothing.
func (r *road) paged(size int64, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fast := float64(size) >= nearRate*took.Seconds()
	if !fast && size < probeBytes/2 {
		return
	}
	if r.fast = fast || r.known && r.fast; !r.known {
		r.known = true
		close(r.judged)
	}
}

// reserve takes bytes of what lists may bring, and says whether there are so many.
func (r *road) reserve(near bool, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, most := &r.far, int64(farBytes)
	if near {
		of, most = &r.under, nearBytes
	}
	if *of+bytes > most {
		return false
	}
	*of += bytes
	return true
}

// done gives back what a list over a near link has taken.
func (r *road) done(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under -= bytes
}
