package boltstore

import (
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// objectMemory is the part of a DB that shares Options.ObjectMemory among its sources,
// first come, first served. A source whose objects no longer fit is dropped whole. It
// comes back once its objects would leave an eighth of the budget free.
type objectMemory struct {
	budget int64

	mu      sync.Mutex
	used    int64
	refused bool // some source did not fit
	closed  bool
	running int
	ended   chan struct{} // closed when running becomes 0
}

// reserve says whether a source of that size may be loaded, and counts it then.
func (o *objectMemory) reserve(n int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	fits := o.used+n <= o.budget-o.budget/8
	if fits {
		o.used += n
	}
	o.refused = o.refused || !fits
	return fits
}

// take counts n more bytes. It returns false if they are too many; they count all the
// same until they are given back.
func (o *objectMemory) take(n int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used += n
	return n <= 0 || o.used <= o.budget
}

func (o *objectMemory) give(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used -= n
}

// run runs fn in a goroutine that close waits for.
func (o *objectMemory) run(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if o.running++; o.running == 1 {
		o.ended = make(chan struct{})
	}
	go func() {
		defer func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.running--; o.running == 0 {
				close(o.ended)
			}
		}()
		fn()
	}()
}

// wait returns once no goroutine runs.
func (o *objectMemory) wait() {
	o.mu.Lock()
	running, ended := o.running > 0, o.ended
	o.mu.Unlock()
	if running {
		<-ended
	}
}

// tryRefused has the sources that did not fit try again.
func (o *objectMemory) tryRefused(db *DB) {
	o.mu.Lock()
	refused := o.refused
	o.refused = false
	o.mu.Unlock()
	if refused {
		o.run(func() {
			for _, s := range db.claimed() {
				s.settleMemory()
			}
		})
	}
}

// close drops all objects of a closed file.
func (o *objectMemory) close(db *DB) {
	for _, s := range db.claimed() {
		s.endMemory()
	}
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.wait()
}

func (db *DB) claimed() (all []*Store) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, s := range db.claims {
		all = append(all, s)
	}
	return all
}

// memory is a Store's objects in memory.
type memory struct {
	// now is the resident that is being loaded or served, or nil. served is nil until
	// readers use that resident.
	now, served atomic.Pointer[resident]
	// wanted: the source is claimed, and there is a budget.
	wanted atomic.Bool

	// disagreed counts how often memory differed from the file. It is then loaded again;
	// tests fail.
	disagreed atomic.Uint64

	mu   sync.Mutex // held while loading begins
	seen sizes      // as last seen
	last *resident  // the previous objects; a pointer stays as long as its record does

	// mutated watches the objects if KUBE_CACHE_MUTATION_DETECTOR is set, as client-go
	// does, until unwatched is closed. It does nothing by default.
	mutated   cache.MutationDetector
	unwatched chan struct{}
	unwatch   sync.Once
}

// current is the resident that is being loaded or served. If loading is about to begin,
// current waits for that.
func (m *memory) current() *resident {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.Load()
}

// residentSize is about how much memory an object takes, with one index, in bytes. It was
// measured with 1,000 objects of each kind (TestResidentSize), in bytes of live heap an
// object:
//
//	| objects                      | payload |   heap |
//	| pods, typed                  |   5,100 | 13,800 |
//	| pods, unstructured           |   6,200 | 48,200 |
//	| pods, metadata only          |   3,300 |  5,500 |
//	| small config maps, typed     |      60 |  1,060 |
//	| the same, unstructured       |     120 |  1,640 |
//	| the same, metadata only      |      60 |    740 |
func (s *Store) residentSize(payload int) int64 {
	factor := 2.5
	switch s.source.Form {
	case FormUnstructured:
		factor = 7.5
	case FormMetadata:
		factor = 1.5
	}
	return int64(factor*float64(payload)) + residentBase
}

const residentBase = 1000

// slotSize is about how much memory a record's object takes with its indices, in bytes.
func (s *Store) slotSize(key string, r *format.Record) int64 {
	return s.residentSize(r.UnpackedSize()+len(key)) + valuesSize(r.Values)
}

// valuesSize is about how much memory an object's values take in the indices.
// residentBase has room for one.
func valuesSize(all []format.IndexValues) (size int64) {
	n := 0
	for _, iv := range all {
		for _, v := range iv.Values {
			size += int64(len(v))
			n++
		}
	}
	return size + int64(max(n-1, 0))*residentValue
}

// residentValue is about how many bytes of memory a value of an index takes, besides its
// text. It takes some 330 if no other object has it, 50 if many have (TestResidentIndexSize).
const residentValue = 250

// objectMemoryWithoutLimit is the budget where there is no memory limit.
const objectMemoryWithoutLimit = 8 << 20

// defaultObjectMemory is Options.ObjectMemory's default.
func defaultObjectMemory() int64 { return objectMemoryOf(memoryLimit("/", debug.SetMemoryLimit(-1))) }

func objectMemoryOf(limit int64) int64 {
	if limit <= 0 {
		return objectMemoryWithoutLimit
	}
	return max(limit/4, 1)
}

// memoryLimit is the memory limit of the process, 0 if it has none. root is "/", and
// another folder in tests.
func memoryLimit(root string, runtimeLimit int64) (limit int64) {
	least := func(n int64) {
		if n > 0 && n < noMemoryLimit && (limit == 0 || n < limit) {
			limit = n
		}
	}
	least(runtimeLimit)
	own, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		dir, name := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[1] == "memory":
			dir, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[0] != "0":
			continue
		}
		// The limits of the groups above hold, too. In a container the path may be that
		// of the host, and only the root exists.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if b, err := os.ReadFile(filepath.Join(root, dir, group, name)); err == nil {
				n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is no limit
				least(n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}

// noMemoryLimit is above all real limits: systems state a large number for none.
const noMemoryLimit = 1 << 60

// sizes say how much memory a source's objects take: a constant for each, and a ratio to
// its size in the file, which may be packed. ratio is 0 if unknown.
type sizes struct{ each, ratio float64 }

// seen returns the sizes of the slots.
func (r *resident) seen() (s sizes) {
	if r.stored <= 0 {
		return s
	}
	n, each := int64(len(r.slots)), int64(0)
	for _, sl := range r.slots {
		each += residentBase + valuesSize(sl.values)
	}
	return sizes{float64(each) / float64(max(n, 1)), float64(r.size-each) / float64(r.stored)}
}
