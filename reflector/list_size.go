package reflector

import "time"

const (
	firstPage    = 250 // only its end shows the version and the link's speed
	largestPage  = 10_000
	smallestPage = 20
	// Servers compress answers above 128 KiB.
	compressed = 160 << 10
	// A page that takes longer than slowPage is too large for its link: a break
	// costs a page.
	slowPage, fastPage = 20 * time.Second, 5 * time.Second
)

// pageSize is how many objects a list's pages have.
type pageSize struct {
	limit    int64
	fixed    bool  // the caller has set it
	smallest int64 // a page with fewer objects would not be compressed
	bytes    int64 // Options.pageBytes
}

// fit makes the next page larger or smaller, by this one's bytes, 0 if they are
// not known, its objects, and the time it took.
func (p *pageSize) fit(size int64, objects int, took time.Duration) {
	if size > 0 && objects > 0 {
		p.smallest = min(max(compressed*int64(objects)/size, smallestPage), firstPage)
	}
	switch {
	case took >= slowPage:
		p.limit = max(p.limit/2, p.smallest)
	case size > 2*p.bytes:
		p.limit = min(p.limit, max(p.limit*p.bytes/size, p.smallest))
	case took < fastPage && size > 0 && size < p.bytes:
		p.limit = min(8*p.limit, max(p.limit, p.limit*p.bytes/size), largestPage)
	}
}
