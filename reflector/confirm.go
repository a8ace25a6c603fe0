package reflector

import (
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
)

// Confirm says how a source proves, after a restart, that nothing was missed, if the
// server's version has moved on.
type Confirm int

const (
	// ConfirmAuto is ConfirmList for a start while HasSynced waits, if that is cheap and
	// no request has failed before, and ConfirmBookmark otherwise. It is cheap if the list
	// will come before a bookmark, as its pages so far show. A list of few objects also
	// asks for the server's version, which saves a round trip or two.
	//
	// A caller of WaitForFresh is also answered by a list of few objects, if none was in
	// vain in the last five minutes.
	ConfirmAuto Confirm = iota
	// ConfirmBookmark waits one to two seconds for a bookmark. It costs the fewest bytes.
	ConfirmBookmark
	// ConfirmList lists the objects' metadata beside the watch and compares it with the
	// file. The list or a bookmark confirms, whichever comes first. Clients whose config
	// WrapConfig has not seen list whole objects.
	ConfirmList
)

const (
	// bookmarkAfter is how long a bookmark usually takes: the server sends it in the
	// second second of a watch of 3 s.
	bookmarkAfter = 1200 * time.Millisecond
	// calm is how long a watch that replays objects in no order must bring nothing before the
	// file is compared.
	calm = 5 * time.Millisecond
	// firstProvingPage is the size of the first page, and provingPage that of the largest.
	// A page is in memory.
	firstProvingPage, provingPage = 64 << 10, 2 << 20
	// startBytes is the largest list, unpacked, that asks for the version at a start, and
	// fewBytes the largest one that does so for callers that wait.
	startBytes, fewBytes = 1 << 20, 128 << 10
	// mostBehind is how long lists answer callers that wait until one waits for the bookmark.
	mostBehind = 30 * time.Second
	// mostLacking is how many objects of a list may be left to the watch.
	mostLacking = 5000
)

// proving decides whether a list should confirm.
type proving struct {
	mode Confirm

	mu     sync.Mutex
	spent  bool      // a list was compared in this life, or a request has failed, or no metadata can be had
	vain   time.Time // when a list for callers that wait last failed, or has shown nothing
	behind time.Time // since when lists answer callers that wait; zero once the stated version was reached
	under  bool      // the list that has answered the last question may still confirm

	differs chan struct{} // a list has disproved the file
}

// spend: the automatic choice lists no more in this life. It has, or the server could not be
// reached: once it is back, all sources ask it at once, so they leave it to a bookmark.
func (p *proving) spend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = true
}

// may says whether the automatic choice may still list in this life. It may once.
func (p *proving) may() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.spent
}

// compare notes whether a list that has answered the last question may still confirm.
func (p *proving) compare(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under = yes
}

// compares says whether one may.
func (p *proving) compares() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.under
}

// mayHelp says whether lists for callers that wait may help: none was in vain lately.
func (p *proving) mayHelp(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vain.IsZero() || now.Sub(p.vain) > postponed
}

// lags notes that a list answers a caller that waits, and says whether lists have done so for
// too long. Only the watch moves the resume point, and callers that keep coming end it early.
func (p *proving) lags(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.behind.IsZero() {
		p.behind = now
	}
	return now.Sub(p.behind) > mostBehind
}

// reached: the watch has brought the stated version, or everything was read.
func (p *proving) reached() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behind = time.Time{}
}

// inVain: one was.
func (p *proving) inVain(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vain = now
}

// proves says whether a list should be compared with the file, beside the watch that is
// being opened: the one that has answered the question, or once in a life, if not for more.
func (s *Reflector) proves(phase Phase, listed *page) bool {
	if !s.comparable() {
		return false
	}
	may := s.mayList()
	if may {
		s.proving.spend()
	}
	return may || listed != nil || s.proving.mode == ConfirmList && phase == PhaseCatchingUp
}

// comparable says whether a list of metadata can be compared at all. It cannot if the
// caller's list function leaves objects out.
func (s *Reflector) comparable() bool {
	return s.proving.mode != ConfirmBookmark && ordered(s.queue) && s.store.Upstream.ByMetadata() &&
		!s.store.Upstream.Facts().Filtered &&
		s.store.Err() == nil && s.store.Feed.UnstoredObjects() == 0
}

// mayList says whether a list is to be compared with the file, since the file was resumed and
// no list has been read in this life.
func (s *Reflector) mayList() bool {
	return s.requests.server != "" && !s.status.hasRelisted() && s.proving.may()
}

// metadataSize is how many bytes metadata takes in an uncompressed list, for each object
// and for all. It is the size that was last seen or that the records suggest.
func metadataSize(store *boltstore.Claimed) (each, all int64) {
	st := store.State()
	n := int64(max(st.Objects, 1))
	if each = int64(store.Upstream.Facts().MetadataSize); each == 0 {
		each = int64(st.Bytes)*5/4/n + 128
	}
	return each, each * int64(st.Objects)
}

// guessMetadata notes how large metadata is in a list, by some objects of a full one. The
// file may not show it, since a transform may have taken fields away.
func (s *Reflector) guessMetadata(objs []runtime.Object) {
	if s.store.Upstream.Facts().MetadataSize > 0 || len(objs) == 0 {
		return
	}
	const typeMeta = 60
	some, size := objs[:min(len(objs), 16)], 0
	for _, obj := range some {
		m, err := meta.Accessor(obj)
		if err != nil {
			return
		}
		b, err := json.Marshal(meta.AsPartialObjectMetadata(m))
		if err != nil {
			return
		}
		size += len(b) + typeMeta
	}
	s.store.Upstream.NoteFacts(func(f *listing.Facts) { f.MetadataSize = uint64(size / len(some)) })
}
