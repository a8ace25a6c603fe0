package reflector

import "time"

const (
	firstPage    = 250 // only its end shows the version and the link's speed
	largestPage  = 10_000
	smallestPage = 20 // of a list that has shown no size
	// tooLarge is how many times Options.pageBytes a page may have. Objects may be a
	// thousand times as large as those of the page before.
	tooLarge = 8
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

// most is how many bytes a page may have, 0 for any number. So few objects have 12 MiB at
// most, unless the server gives more than it is asked for.
func (p *pageSize) most() int64 {
	if p.fixed || p.limit <= tooLarge {
		return 0
	}
	return tooLarge * p.bytes
}

// begin makes the first page smaller, by the size of the objects in the file, 0 if it is
// not known.
func (p *pageSize) begin(each int64) {
	if each > 0 && !p.fixed {
		p.limit = min(p.limit, max(p.bytes/each, 1))
	}
}

// fit makes the next page larger or smaller, by this one's bytes, 0 if they are
// not known, its objects, and the time it took.
func (p *pageSize) fit(size int64, objects int, took time.Duration) {
	if size > 0 && objects > 0 {
		p.smallest = min(max(compressed*int64(objects)/size, 1), firstPage)
	}
	switch {
	case took >= slowPage:
		p.limit = min(p.limit, max(p.limit/2, p.smallest))
	case size > 2*p.bytes:
		p.limit = min(p.limit, max(p.limit*p.bytes/size, p.smallest))
	case took < fastPage && size > 0 && size < p.bytes:
		p.limit = min(8*p.limit, max(p.limit, p.limit*p.bytes/size), largestPage)
	}
}
