package boltstore

import (
	"math"
	"os"
	"runtime/debug"
	"sync"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/internal/memlimit"
)

// objectMemory is the part of a DB that shares Options.ObjectMemory among its sources,
// first come, first served. A source whose objects no longer fit is dropped whole. It
// comes back with a later commit, once its objects would leave an eighth of the budget free.
type objectMemory struct {
	budget int64

	mu   sync.Mutex
	used int64
}

// reserve says whether a source of that size may be loaded, and counts it then.
func (o *objectMemory) reserve(n int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	fits := o.used+n <= o.budget-o.budget/8
	if fits {
		o.used += n
	}
	return fits
}

// add counts n more bytes. It returns false if they are too many; they count all the same.
func (o *objectMemory) add(n int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used += n
	return n <= 0 || o.used <= o.budget
}

// room is how many bytes r may take while it is being filled.
func (mem *memory) room(r *resident) int64 {
	mem.mu.RLock()
	defer mem.mu.RUnlock()
	mem.s.db.objects.mu.Lock()
	defer mem.s.db.objects.mu.Unlock()
	return mem.s.db.objects.budget - mem.s.db.objects.used + r.counted
}

// count makes the budget count what r takes by now. The caller holds memory.mu.
func (r *resident) count() error {
	more := r.size - r.counted
	r.counted = r.size
	if !r.s.db.objects.add(more) {
		return errOverBudget
	}
	return nil
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
func (mem *memory) residentSize(payload int) int64 {
	factor := 2.5
	switch mem.s.name.Form {
	case FormUnstructured:
		factor = 7.5
	case FormMetadata:
		factor = 1.5
	}
	return int64(factor*float64(payload)) + residentBase
}

const residentBase = 1000

// slotSize is about how much memory a record's object takes with its indices, in bytes.
func (mem *memory) slotSize(key string, r *format.Record) int64 {
	return mem.residentSize(r.UnpackedSize()+len(key)) + valuesSize(r.Values)
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
func defaultObjectMemory() int64 {
	return objectMemoryOf(debug.SetMemoryLimit(-1), memlimit.Cgroup(os.DirFS("/")))
}

// objectMemoryOf is a quarter of the least limit. Go's runtime says that there is none by the
// largest number, a control group by 0.
func objectMemoryOf(runtime, cgroup int64) int64 {
	limit := runtime
	if cgroup > 0 {
		limit = min(limit, cgroup)
	}
	if limit <= 0 || limit == math.MaxInt64 {
		return objectMemoryWithoutLimit
	}
	return max(limit/4, 1)
}

// estimate is about how much memory the source's objects take, in bytes. Packed objects and
// those with many index values take more than meta shows. That is known once they have not
// fitted. The caller holds memory.mu.
func (mem *memory) estimate(m *sourceMeta) int64 {
	return int64(max(mem.factor, 1) * float64(mem.shownSize(m)))
}

// shownSize is what meta shows of the size in memory.
func (mem *memory) shownSize(m *sourceMeta) int64 {
	return mem.residentSize(int(m.Bytes)) + int64(m.Items.Count)*residentBase
}
