package reflector

import "time"

const (
	firstPage    = 250 // only its end shows the version and the link's speed
	largestPage  = 10_000
	smallestPage = 20 // for a list that has shown no size
	// tooLarge is how many times Options.pageBytes a page may have. Its objects may be a
	// thousand times as large as those of the page before.
	tooLarge = 8
	// Servers compress answers above 128 KiB.
	compressed = 160 << 10
	// A page that takes longer than slowPage is too large for its link: a break
	// costs a page.
	slowPage, fastPage = 20 * time.Second, 5 * time.Second
)

// pageSize decides how many objects a list's pages have.
type pageSize struct {
	limit    int64
	fixed    bool  // the caller has set it
	smallest int64 // a page with fewer objects would not be compressed
	bytes    int64 // Options.pageBytes
}

// most is how many bytes the next page may have, 0 for any number. A page of
// up to tooLarge objects needs no bound: it has at most 12 MiB, unless the server returns
// more objects than it is asked for.
func (p *pageSize) most() int64 {
	if p.fixed || p.limit <= tooLarge {
		return 0
	}
	return tooLarge * p.bytes
}

// begin makes the first page smaller if the objects in the file are large. each is their
// size, 0 if unknown.
func (p *pageSize) begin(each int64) {
	if each > 0 && !p.fixed {
		p.limit = min(p.limit, max(p.bytes/each, 1))
	}
}

// fit makes the next page larger or smaller, by this page's bytes (0 if unknown), its
// objects, and the time that it took.
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
