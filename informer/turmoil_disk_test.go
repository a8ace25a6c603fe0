package informer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/kubewake/kubewake/internal/disktest"
)

// tdisk is the disk that the file is on. It ends a life before or within one of its
// operations, and can be full.
type tdisk struct {
	dead   atomic.Bool  // the life has ended: what it does is not seen any more
	full   atomic.Int64 // how many of ten operations find no room
	freeze func()       // the handlers, when the life ends

	mu      sync.Mutex
	disk    *disktest.Disk
	r       *rand.Rand
	left    int // operations until the life ends; negative: it does not
	within  bool
	at      *disktest.Moment
	then    *disktest.Moment // if it ended within an operation: after that
	refused int              // transactions in a row, since the disk is full
	whose   []uintptr        // the last of these was
	err     error
}

// op is called before each operation on files.
func (d *tdisk) op(op, path string) error {
	if strings.Contains(path, ".snapshot-") {
		return nil // a file without a name
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		_, err := d.disk.Before(op, path)
		d.note(err)
	}
	switch {
	case d.at != nil:
		d.after()
	case d.left == 0:
		d.catch(d.within)
	case d.left > 0:
		d.left--
	}
	switch op {
	case "create", "write", "transaction", "link":
		if d.r.IntN(10) < int(d.full.Load()) {
			if op == "transaction" {
				d.refused++
				if d.whose == nil {
					d.whose = make([]uintptr, 40)
				}
				runtime.Callers(2, d.whose)
			}
			return fmt.Errorf("%s %s: %w", op, path, syscall.ENOSPC)
		}
		d.refused = 0
	}
	return nil
}

func (d *tdisk) note(err error) {
	if d.err == nil {
		d.err = err
	}
}

// catch notes the disk's contents as the life ends.
func (d *tdisk) catch(within bool) {
	m, err := d.disk.Moment()
	d.note(err)
	d.at, d.within = m, within
	d.dead.Store(true)
	d.freeze()
}

func (d *tdisk) after() {
	if d.within && d.then == nil {
		m, err := d.disk.Moment()
		d.note(err)
		d.then = m
	}
}

// now ends the life, unless it has ended. No operation is under way.
func (d *tdisk) now() {
	if d.at == nil {
		_, err := d.disk.Before("end", "")
		d.note(err)
		d.catch(false)
	}
	d.after()
}

// arm ends the life before that many more operations, or within the next one then.
func (d *tdisk) arm(operations int, within bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.within = operations, within
}

// end ends the life, unless it has ended, and puts the remaining files into another
// folder.
func (d *tdisk) end(power bool, dir string) (doing string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now()
	doing = "within " + d.at.Doing()
	if !d.within {
		d.then = nil
		doing = "before " + d.at.Doing()
	}
	left := d.at.Killed
	if power {
		left = d.at.Cut
	}
	if d.err == nil {
		d.err = left(d.then, d.r).Make(dir)
	}
	d.disk.Close()
	return doing, d.err
}

// watch begins with a folder.
func (m *turmoil) watch(dir string) {
	disk, err := disktest.New(dir)
	if err != nil {
		m.fatal(err)
	}
	m.path = filepath.Join(dir, "wake.db")
	m.disk = &tdisk{disk: disk, r: rand.New(rand.NewPCG(m.r.Uint64(), 0)), left: -1, freeze: m.freeze}
}

func (m *turmoil) freeze() {
	for _, s := range m.sources {
		for _, b := range []*belief{s.plain, s.durable} {
			b.mu.Lock()
			b.frozen = true
			b.mu.Unlock()
		}
	}
}

// die ends the process, or the power, before or within one of the next operations on files.
func (m *turmoil) die(power bool) {
	n, within := m.r.IntN(9), m.r.IntN(2) == 0
	what := []string{"", "compacting", "taking a snapshot", "changing", "ending"}[m.r.IntN(5)]
	m.say("the end is near: power %v, in %d operations, %s", power, n, what)
	if m.r.IntN(3) == 0 {
		m.end()
		m.disk.arm(n+m.r.IntN(12), within)
		if m.options(); m.r.IntN(3) == 0 {
			m.convert()
		}
		m.start()
	}
	m.disk.arm(n, within)
	var ending sync.WaitGroup
	switch what {
	case "compacting":
		_, _ = m.db.Compact(m.t.Context(), nil) // the disk ends within it
	case "taking a snapshot":
		if s, err := m.db.Snapshot(); err == nil {
			_ = s.Close() // likewise
		}
	case "changing":
		for range 5 {
			m.change()
			after(m.soon(50))
		}
	case "ending": // and a handler does not return any more
		db := m.db
		ending.Go(func() {
			m.stop()
			_ = db.Close() // likewise
		})
	}
	after(m.soon(3000))
	m.discard(power)
	ending.Wait()
}

// discard ends the life at once if it has not ended. The next one finds the disk's
// contents.
func (m *turmoil) discard(power bool) {
	m.disk.mu.Lock()
	m.disk.now()
	m.disk.mu.Unlock()
	m.room()
	m.files++
	old := filepath.Dir(m.path)
	dir := filepath.Join(filepath.Dir(old), fmt.Sprint(m.files))
	if err := os.Mkdir(dir, 0o700); err != nil {
		m.fatal(err)
	}
	doing, err := m.disk.end(power, dir)
	if err != nil {
		m.fatal(err)
	}
	for _, s := range m.sources {
		for _, b := range []*belief{s.plain, s.durable} {
			b.mu.Lock()
			b.life = -1
			b.cond.Broadcast()
			b.mu.Unlock()
		}
	}
	m.stop()
	_ = m.db.Close() // of the old folder, which is removed
	m.db = nil
	if err := os.RemoveAll(old); err != nil {
		m.fatal(err)
	}
	m.say("the end, power %v: %s", power, doing)
	m.deaths[fmt.Sprintf("%s %s", map[bool]string{true: "power", false: "process"}[power],
		strings.Join(strings.Fields(doing)[:2], " "))]++
	if power {
		m.boot++
		if !m.synced {
			m.lose("what was not synced", true)
			m.unsynced = true
		}
	}
	m.watch(dir)
}

// lose notes that the file may have lost something: plain handlers need no longer be told
// the deletes of objects that they know.
func (m *turmoil) lose(what string, durable bool) {
	m.say("lost: %s", what)
	m.hurt = true
	m.lossy.Store(true)
	for _, s := range m.sources {
		s.plain.excuse()
		if durable {
			s.durable.excuse()
		}
	}
}

// damage changes the file, which may be open.
func (m *turmoil) damage() {
	file, err := os.ReadFile(m.path)
	if err != nil {
		m.fatal(err)
	}
	const page = 4096
	if len(file) < 3*page {
		return
	}
	var used []int // pages that were ever written
	for at := 0; at+page <= len(file); at += page {
		if bytes.Count(file[at:at+page], []byte{0}) < page {
			used = append(used, at)
		}
	}
	now := bytes.Clone(file)
	kind := []string{"bits", "zeros", "noise", "older", "swapped", "short"}[m.r.IntN(6)]
	if m.db != nil && kind == "short" {
		kind = "zeros"
	}
	for range 1 + m.r.IntN(3) {
		at := used[m.r.IntN(len(used))]
		p := now[at : at+page]
		switch sector := p[512*m.r.IntN(8):][:512]; kind {
		case "bits":
			for range 1 + m.r.IntN(8) {
				p[m.r.IntN(page)] ^= 1 << m.r.IntN(8)
			}
		case "zeros":
			clear(sector)
		case "noise":
			for i := range sector {
				sector[i] = byte(m.r.Uint32())
			}
		case "older":
			if at >= 2*page && at+page <= len(m.older) {
				copy(p, m.older[at:])
			}
		case "swapped":
			other := used[m.r.IntN(len(used))]
			if min(at, other) >= 2*page {
				copy(p, file[other:other+page])
				copy(now[other:], file[at:at+page])
			}
		case "short":
			now = now[:1+m.r.IntN(len(now)-1)]
		}
		if kind == "short" {
			break
		}
	}
	if bytes.Equal(now, file) {
		return
	}
	m.say("damage: %s, open %v", kind, m.db != nil)
	meta := len(now) < 2*page || !bytes.Equal(now[:2*page], file[:2*page])
	// There may be no sign left of the last commit.
	m.lose("by damage", meta)
	f, err := os.OpenFile(m.path, os.O_WRONLY, 0)
	if err != nil {
		m.fatal(err)
	}
	defer f.Close()
	for at := 0; at < len(now); at += page {
		if p := now[at:min(at+page, len(now))]; !bytes.Equal(p, file[at:at+len(p)]) {
			if _, err := f.WriteAt(p, int64(at)); err != nil {
				m.fatal(err)
			}
		}
	}
	if len(now) < len(file) {
		if err := f.Truncate(int64(len(now))); err != nil {
			m.fatal(err)
		}
	}
	m.deaths["damage "+kind]++
}

// stack is the stack of the last transaction that was refused.
func (d *tdisk) stack() (s string) {
	for all := runtime.CallersFrames(d.whose); ; {
		f, more := all.Next()
		s += fmt.Sprintf("%s:%d ", f.Function, f.Line)
		if !more {
			return s
		}
	}
}
