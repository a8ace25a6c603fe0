package boltstore

import (
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/kubewake/kubewake/boltstore/internal/format"
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
func (s *Store) room(r *resident) int64 {
	s.memory.mu.RLock()
	defer s.memory.mu.RUnlock()
	s.db.objects.mu.Lock()
	defer s.db.objects.mu.Unlock()
	return s.db.objects.budget - s.db.objects.used + r.counted
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

// estimate is about how much memory the source's objects take, in bytes. Packed objects and
// those with many index values take more than meta shows. That is known once they have not
// fitted. The caller holds memory.mu.
func (s *Store) estimate(m *sourceMeta) int64 {
	return int64(max(s.memory.factor, 1) * float64(s.shownSize(m)))
}

// shownSize is what meta shows of the size in memory.
func (s *Store) shownSize(m *sourceMeta) int64 {
	return s.residentSize(int(m.Bytes)) + int64(m.Items.Count)*residentBase
}
