//go:build linux

package load

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// seen has the newest version of each key that a read of this life has shown.
type seen []atomic.Uint64

func (s seen) at(slot int) uint64 { return s[slot].Load() }

func (s seen) note(slot int, version uint64) {
	for {
		was := s[slot].Load()
		if version <= was || s[slot].CompareAndSwap(was, version) {
			return
		}
	}
}

// reader reads one source, four in five of them the large one.
type reader struct {
	*child
	src  int
	rnd  *rand.Rand
	seen seen
}

// read reads until the end, one operation at a time.
func (c *child) read(i int) {
	r := &reader{child: c, rnd: c.random()}
	if i%5 == 4 {
		r.src = small
	}
	r.seen = c.seen[r.src]
	for tick := time.NewTicker(c.spec.ReadEvery); ; <-tick.C {
		c.readers.RLock()
		var what string
		began := time.Now()
		c.reading[i].Store(began.UnixNano())
		switch dice := r.rnd.IntN(20); {
		case dice < 12:
			what = r.get()
		case dice < 15:
			what = r.list()
		case dice < 18:
			what = r.byIndex()
		default:
			what = r.keys()
		}
		took := time.Since(began)
		c.reading[i].Store(0)
		c.readers.RUnlock()
		from := "the file"
		if c.inMemory[r.src].Load() {
			from = "memory"
		}
		c.table.words[reads].Add(1)
		c.mu.Lock()
		c.latency[what+" from "+from] = append(c.latency[what+" from "+from], took)
		c.mu.Unlock()
	}
}

// get reads an object. No read before it has shown a later state.
func (r *reader) get() string {
	slot := r.rnd.IntN(r.spec.Sizes[r.src])
	if r.rnd.IntN(4) == 0 {
		slot = slot / 100 * 100 // where changes meet
	}
	least := r.seen.at(slot)
	key := fmt.Sprintf("%s/o-%06d", r.spec.Sizes.namespace(r.src, slot), slot)
	obj, exists, err := r.infs[r.src].GetStore().GetByKey(key)
	if err != nil {
		r.table.fault("a reader gets %s: %v", key, err)
	} else if exists {
		r.shown(slot, obj.(metav1.Object), least)
	}
	return "Get"
}

func (r *reader) shown(slot int, m metav1.Object, least uint64) {
	got, _, version, err := identity(m)
	if err != nil || got != slot || version < least {
		r.table.fault("a reader is shown %s at %d: slot %d for %d, after version %d: %v", m.GetName(), version, got,
			slot, least, err)
	}
	r.seen.note(slot, version)
	if version%sampled == 0 {
		if err := r.spec.Sizes.whole(m); err != nil {
			r.table.fault("a reader is shown %s at %d: %v", m.GetName(), version, err)
		}
	}
}

// sampled: of one version in so many all content is compared.
const sampled = 16

// list lists a namespace as listers do.
func (r *reader) list() string {
	of := r.rnd.IntN(r.spec.Sizes.values(r.src))
	ns := r.spec.Sizes.namespace(r.src, of)
	least := make([]uint64, 0, together)
	for slot := of; slot < r.spec.Sizes[r.src]; slot += r.spec.Sizes.values(r.src) {
		least = append(least, r.seen.at(slot))
	}
	got := map[string]bool{}
	err := cache.ListAllByNamespace(r.infs[r.src].GetIndexer(), ns, labels.Everything(), func(obj any) {
		m := obj.(metav1.Object)
		slot := slotOf(m.GetName())
		if m.GetNamespace() != ns || got[m.GetName()] {
			r.table.fault("a reader lists %s and gets %s/%s, twice %v", ns, m.GetNamespace(), m.GetName(),
				got[m.GetName()])
			return
		}
		got[m.GetName()] = true
		r.shown(slot, m, least[slot/r.spec.Sizes.values(r.src)])
	})
	if err != nil {
		r.table.fault("a reader lists %s: %v", ns, err)
	}
	return "List of a namespace"
}

func (r *reader) byIndex() string {
	group := strconv.Itoa(r.rnd.IntN(r.spec.Sizes.values(r.src)))
	objs, err := r.infs[r.src].GetIndexer().ByIndex(indexName, group)
	if err != nil {
		r.table.fault("a reader reads index %s: %v", group, err)
	}
	for _, obj := range objs {
		m := obj.(metav1.Object)
		if m.GetLabels()[groupLabel] != group {
			r.table.fault("%s is of group %s, not %s", m.GetName(), m.GetLabels()[groupLabel], group)
		}
		r.shown(slotOf(m.GetName()), m, 0)
	}
	return "ByIndex"
}

func (r *reader) keys() string {
	group := strconv.Itoa(r.rnd.IntN(r.spec.Sizes.values(r.src)))
	keys, err := r.infs[r.src].GetIndexer().IndexKeys(indexName, group)
	if err != nil {
		r.table.fault("a reader reads keys of %s: %v", group, err)
	}
	for _, key := range keys {
		if slot := slotOf(key); slot >= r.spec.Sizes[r.src] {
			r.table.fault("index %s has %s", group, key)
		}
	}
	return "IndexKeys"
}

// stuck finds fault with a read that does not end.
func (c *child) stuck() {
	for i := range c.reading {
		if at := c.reading[i].Load(); at != 0 && time.Since(time.Unix(0, at)) > patience {
			c.table.fault("reader %d has read for more than %v", i, patience)
		}
	}
}

// contents finds fault with objects that are not as they were written. It reads a namespace
// at a time: the garbage of comparing would otherwise double the memory of a list of all.
func (c *child) contents() {
	for src, inf := range c.infs {
		for of := range c.spec.Sizes.values(src) {
			ns := c.spec.Sizes.namespace(src, of)
			err := cache.ListAllByNamespace(inf.GetIndexer(), ns, labels.Everything(), func(obj any) {
				if err := c.spec.Sizes.whole(obj.(metav1.Object)); err != nil {
					c.table.fault("a list of %s in %s: %v", resources[src], ns, err)
				}
			})
			if err != nil {
				c.table.fault("a list of %s in %s: %v", resources[src], ns, err)
			}
		}
	}
}

// compare finds fault with reads that miss an object, or show one that is gone. All
// handlers know the server's state, and nothing changes.
func (c *child) compare() {
	for src, inf := range c.infs {
		row, there := c.row(src), 0
		for slot := range row {
			if word(row[slot].Load()).live() {
				there++
			}
		}
		all := inf.GetIndexer().List()
		if keys := inf.GetIndexer().ListKeys(); len(all) != there || len(keys) != there {
			c.table.fault("a list of %s has %d objects and %d keys, not %d", resources[src], len(all), len(keys), there)
		}
		model := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers())
		for _, obj := range all {
			slot, inc, version, err := identity(obj.(metav1.Object))
			if err != nil || !word(row[slot].Load()).is(state{content: content{inc: inc}, live: true,
				version: version}) {
				c.table.fault("a list of %s has slot %d at %d: %v", resources[src], slot, version, err)
			}
			if err := model.Add(obj); err != nil {
				c.table.fault("%v", err)
			}
		}
		for name := range indexers() {
			for _, value := range model.ListIndexFuncValues(name) {
				want, _ := model.ByIndex(name, value) // an index that it has
				got, err := inf.GetIndexer().ByIndex(name, value)
				keys, keysErr := inf.GetIndexer().IndexKeys(name, value)
				if err != nil || keysErr != nil || len(got) != len(want) || len(keys) != len(want) {
					c.table.fault("index %s of %s: %q has %d objects and %d keys, not %d: %v %v", name,
						resources[src], value, len(got), len(keys), len(want), err, keysErr)
				}
			}
		}
	}
}

// row has the beliefs of a source's first handler.
func (c *child) row(src int) []atomic.Uint64 {
	h := slices.IndexFunc(handlers(), func(of handler) bool { return of.src == src })
	return c.table.belief(h, c.spec.Life).row
}
