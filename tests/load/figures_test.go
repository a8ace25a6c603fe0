//go:build linux

package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// figures are the reported figures of all lives.
type figures struct {
	anon       int64
	goroutines int
	size       int64
	plain      [sources]uint64
	keys       int
	oldest     time.Duration
	failing    int
	reads      map[string][]time.Duration
	objects    uint64
	last       *status // that was asked for
}

func (f *figures) add(s *status) {
	f.anon, f.goroutines, f.size = max(f.anon, s.Anon), max(f.goroutines, s.Goroutines), max(f.size, int64(s.Size))
	for src, n := range s.Plain {
		f.plain[src] = max(f.plain[src], n)
	}
	f.keys, f.oldest, f.failing = max(f.keys, s.Keys), max(f.oldest, s.Oldest), max(f.failing, s.Failing)
	if f.reads == nil {
		f.reads = map[string][]time.Duration{}
	}
	for what, took := range s.Reads {
		f.reads[what] = append(f.reads[what], took...)
	}
	f.objects = max(f.objects, s.Objects)
	if s.Live > 0 { // it was asked for; the program also reports by itself
		f.last = s
	}
}

// The bounds. The table "Memory" in docs/design/commit.md lists the memory that the
// program keeps, and Go lets the heap grow to twice that:
//
//   - 15 MiB for each source: changes that wait for a commit, for handlers and for
//     acknowledgements, and decoded objects; 8 MiB of events that a watch reads ahead of
//     a relist, 4 MiB of two pages of a list and 4 MiB of a transaction for each; 16 MiB
//     for Options.ObjectMemory.
//   - For each handler that is behind, a block of the journal or two pages of a replay, of
//     512 KiB each, and as much again decoded.
//   - For each reader the objects of its list, less than 0.5 MiB.
//   - 32 MiB for the rest: goroutines, bbolt's pages of a transaction, the runtime.
//
// None depends on the number of objects or changes.
const (
	mostAnon       = (2*(sources*(15+8+4+4)+16+50+25) + 32) << 20
	mostGoroutines = 600 // the handlers and readers have 250, a list is decoded by two more each
)

// entryBytes is more than an entry takes that is kept for a plain handler, and a pending key
// of a durable one with its deletes.
const entryBytes = 3 << 10

// mostFile bounds a file that is not compacted by hand: the keeper leaves up to 0.6 of it
// unused, and while a snapshot is taken no page is used again.
func (f *figures) mostFile(journal int64) int64 {
	kept := 2*int64(f.objects) + sources*2*journal
	for _, n := range f.plain {
		kept += int64(n) * entryBytes
	}
	return kept*5/2 + int64(f.keys)*entryBytes*5/2 + 64<<20
}

// mostCompacted bounds a file in which no handler is behind: objects and indices, sealed,
// and the journal.
func mostCompacted(s status, journal int64) int64 {
	return 2*int64(s.Objects) + sources*journal*3/2 + 2<<20
}

// mostLive bounds what is in use at the end, when no handler is behind: decoded objects
// (7 MiB for each source, and Options.ObjectMemory), the tables of this test and bbolt's
// list of free pages, and 16 MiB for the rest. A leak shows here before mostAnon.
func mostLive(s spec) int64 {
	objects := int64(s.Sizes[large] + s.Sizes[small])
	return sources*7<<20 + s.options().ObjectMemory + objects*600 + 16<<20
}

// mostGrown bounds by how much the memory in use may differ between two moments at which
// no handler is behind: kept objects and entries, not more than mostLive counts.
const mostGrown = sources * 7 << 20

// broken says which bounds were exceeded.
func (f *figures) broken(journal int64) (all []string) {
	if f.anon > mostAnon && !raced {
		all = append(all, fmt.Sprintf("%s of anonymous memory, at most %s", mb(f.anon), mb(mostAnon)))
	}
	if f.goroutines > mostGoroutines {
		all = append(all, fmt.Sprintf("%d goroutines, at most %d", f.goroutines, mostGoroutines))
	}
	if most := f.mostFile(journal); f.size > most {
		all = append(all, fmt.Sprintf("a file of %s, at most %s", mb(f.size), mb(most)))
	}
	return all
}

// quantiles says how long reads took.
func (f *figures) quantiles() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(f.reads)) {
		all := slices.Sorted(slices.Values(f.reads[what]))
		at := func(q float64) time.Duration {
			return all[min(int(q*float64(len(all))), len(all)-1)].Round(time.Microsecond)
		}
		fmt.Fprintf(&b, "\n%s: %d, p50 %v, p99 %v, at most %v", what, len(all), at(0.5), at(0.99),
			all[len(all)-1].Round(time.Microsecond))
	}
	return b.String()
}

func mb(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }
