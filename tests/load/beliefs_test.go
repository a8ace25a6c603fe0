//go:build linux

package load

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// table has the handlers' beliefs, a word for each handler and key, and the program's
// reports about itself. It is in a file that the program and the test have mapped, so it
// survives when the program is killed.
type table struct {
	sizes sizes
	words []atomic.Uint64
	rows  []int // where a handler's words begin
}

// The words before the rows.
const (
	committed = iota                // sources words: the version that can be read
	untold    = committed + sources // sources words: how far the slowest plain handler is behind
	calls     = untold + sources
	reads     = calls + 1
	faults    = reads + 1
	head      = 16
)

func tableBytes(s sizes) int64 {
	n := head
	for _, h := range handlers() {
		n += s[h.src]
	}
	return int64(n) * 8
}

// openTable maps the table at a path, and makes it if it does not exist.
func openTable(path string, s sizes) (*table, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := tableBytes(s)
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	t := &table{sizes: s, words: unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&data[0])), size/8)}
	at := head
	for _, h := range handlers() {
		t.rows = append(t.rows, at)
		at += s[h.src]
	}
	return t, nil
}

// A word of a handler: the last call for a key. 0 is none.
type word uint64

const (
	liveBit     = 1 << 63
	lifeBits    = 7
	incBits     = 16
	versionBits = 63 - lifeBits - incBits
)

func wordOf(live bool, life int, inc uint32, version uint64) word {
	w := uint64(life)%(1<<lifeBits)<<(incBits+versionBits) |
		uint64(inc)%(1<<incBits)<<versionBits | version%(1<<versionBits)
	if live {
		w |= liveBit
	}
	return word(w)
}

func (w word) live() bool      { return w&liveBit != 0 }
func (w word) life() int       { return int(w >> (incBits + versionBits) % (1 << lifeBits)) }
func (w word) inc() uint32     { return uint32(w >> versionBits % (1 << incBits)) }
func (w word) version() uint64 { return uint64(w % (1 << versionBits)) }

// is says whether the word equals the server's state. The form of a delete does not
// matter.
func (w word) is(s state) bool {
	if !s.live {
		return !w.live()
	}
	return w.live() && w.inc() == s.inc%(1<<incBits) && w.version() == s.version
}

// differing counts the keys at which a handler's belief differs from the server, and
// describes one.
func (t *table) differing(h int, now []state) (n int, example string) {
	for slot, s := range now {
		if w := word(t.words[t.rows[h]+slot].Load()); !w.is(s) {
			if n++; n == 1 {
				example = fmt.Sprintf("%s: %s %d is %+v, the handler believes live %v, object %d, version %d, "+
					"of life %d",
					handlers()[h].name, resources[s.src], slot, s, w.live(), w.inc(), w.version(), w.life())
			}
		}
	}
	return n, example
}

// newest returns the latest version that a handler was told.
func (t *table) newest(h int) (version uint64) {
	for slot := range t.sizes[handlers()[h].src] {
		version = max(version, word(t.words[t.rows[h]+slot].Load()).version())
	}
	return version
}

// fault notes something that must not be.
func (t *table) fault(format string, a ...any) {
	if t.words[faults].Add(1) <= 20 {
		fmt.Fprintf(os.Stderr, "FAULT "+format+"\n", a...)
	}
}

// belief is a handler's row, in one life.
type belief struct {
	*table
	handler
	row   []atomic.Uint64
	life  int
	asked []atomic.Uint64 // of a queue: what it was told last of each key
}

func (t *table) belief(h, life int) *belief {
	of := handlers()[h]
	return &belief{table: t, handler: of, life: life, row: t.words[t.rows[h] : t.rows[h]+t.sizes[of.src]]}
}

// told takes a call, checks it, and returns the version.
func (b *belief) told(live bool, m metav1.Object) uint64 {
	slot, inc, version, err := identity(m)
	if err != nil || slot >= len(b.row) {
		b.fault("%s is told of %s: %v", b.name, m.GetName(), err)
		return 0
	}
	was := word(b.row[slot].Load()) // keys are told one call at a time
	switch {
	case was == 0:
	case live && was.live() && inc > was.inc():
		b.fault("%s is told object %d of slot %d, and not the delete of %d", b.name, inc, slot, was.inc())
	case was.life() == b.life%(1<<lifeBits) && version < was.version() && !b.again():
		b.fault("%s is told version %d of slot %d after %d", b.name, version, slot, was.version())
	case was.life() == b.life%(1<<lifeBits) && !live && !was.live() && inc == was.inc() && b.way == plain:
		b.fault("%s is told the delete of object %d of slot %d twice", b.name, inc, slot)
	}
	b.row[slot].Store(uint64(wordOf(live, b.life, inc, version)))
	b.words[calls].Add(1)
	return version
}
