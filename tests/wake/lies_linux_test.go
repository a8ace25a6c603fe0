package wake

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
)

// TestLyingDevice: a disk has acknowledged flushed writes and loses them when the power
// fails, those of the file and those of the file system, which the next boot repairs. The
// remains can be opened, are set aside, or are refused in words. Then the program goes on:
// it is never told an object that the server did not have, and ends equal to the server.
// Its durable handlers know each object's last state, and each delete of an object that
// they were told since they started over, or since the file was lost.
//
// WAKE_LIES says how many times, 6 by default.
func TestLyingDevice(t *testing.T) {
	t.Parallel()
	takePlace(t)
	n := times(t, "WAKE_LIES", 6, 3)
	if _, err := exec.LookPath("e2fsck"); err != nil {
		t.Skip("the file system that has lost blocks cannot be mounted unless e2fsck repairs it, and it is not "+
			"installed: ", err)
	}
	p := newPowerProgram(t, fullSyncs, 64<<20)
	allLost := 0
	seen := p.lossy(n, p.disk.remember, func() {
		lost := p.disk.lose(p.rnd)
		t.Logf("%d blocks lost", lost)
		allLost += lost
	})
	if allLost == 0 || seen[whole]+seen[aside] == 0 {
		t.Errorf("nothing was tested: %d blocks were lost, the file was %v", allLost, seen)
	}
	if log := p.log(); strings.Contains(log, "fast_commit") {
		t.Errorf("Open warned of a plain ext4:\n%s", log)
	}
}

// TestFastCommit is TestLyingDevice for an ext4 with the feature fast_commit: when the power
// is cut, the file system itself may lose commits that it has synced. That is noticed and
// salvaged, and Open warns of it.
func TestFastCommit(t *testing.T) {
	t.Parallel()
	takePlace(t)
	n := times(t, "WAKE_POWER", 6, 3)
	p := newPowerProgram(t, fullSyncs, 64<<20, "-O", "fast_commit")
	p.churn = compacting // new files, which grow, lose more than one that stays
	losses := 0
	p.lossy(n, func() {}, func() {
		p.disk.restore()
		if _, err := p.untold(); err != nil {
			t.Log(err)
			losses++
		}
	})
	t.Logf("%d of %d cuts have lost commits", losses, n)
	if log := p.log(); !strings.Contains(log, "fast_commit") {
		t.Errorf("Open did not warn:\n%s", log)
	}
}

// log has what p.o's files have logged.
func (p *powerProgram) log() string {
	p.t.Helper()
	b, err := os.ReadFile(p.logged.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// lossy cuts the power n times, mounts what lose leaves, and returns how often the file was
// what after it. before is called while the program writes.
func (p *powerProgram) lossy(n int, before, lose func()) (seen map[string]int) {
	p.t.Helper()
	w := p.w
	p.start()
	p.until(w.mark())
	seen = map[string]int{}
	known := map[string]*told{} // by resource, what handlers know; the file may have forgotten them
	from := 0
	for i := range n {
		w.resume()
		p.start()
		p.eventuallyMore("an event")
		before()
		pause(p.rnd, 500*time.Millisecond)
		p.disk.cut()
		p.kill()
		w.pause()
		p.boot = fmt.Sprint("boot ", i+1)
		tuning.SetFile(&p.o, tuning.File{Boot: p.boot})
		lose()
		was := p.remains()
		p.t.Logf("round %d: the file is %s", i+1, was)
		seen[was]++
		from = p.hear(known, from)
		if was != whole && was != aside {
			clear(known)
		}
		p.start()
		p.until(w.mark())
	}
	p.kill()
	p.start()
	p.untilIdle(w.mark())
	p.kill()
	p.hear(known, from)
	w.verifyFile(p.db, func(resource string, cached []any) { w.toldAll(resource, cached, known[resource].last) })
	p.t.Logf("%v; %d writes, %d lines", seen, w.writes, strings.Count(p.read(), "\n"))
	return seen
}

// What a file is after a loss.
const (
	whole   = "whole"
	aside   = "set aside"
	missing = "missing"
	refused = "refused"
)

// remains opens the file after a loss, as the program will. A file that is refused is moved
// away.
func (p *powerProgram) remains() string {
	p.t.Helper()
	if _, err := os.Stat(p.db); errors.Is(err, os.ErrNotExist) {
		return missing
	}
	db, err := boltstore.Open(p.db, p.o)
	if errors.Is(err, boltstore.ErrKeyset) || errors.Is(err, boltstore.ErrForeign) {
		p.t.Log(err)
		if err := os.Rename(p.db, p.db+".refused"); err != nil {
			p.t.Fatal(err)
		}
		return refused
	}
	if err != nil {
		p.t.Fatal(err)
	}
	was := whole
	if len(db.AsidePaths()) > 0 {
		was = aside
		for _, path := range db.AsidePaths() { // the disk is small
			if err := os.Remove(path); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	if err := db.Close(); err != nil {
		p.t.Fatal(err)
	}
	return was
}

// told has what a resource's handler knows: the last line of each key since it started
// over.
type told struct{ last map[string]line }

// hear takes up the lines behind an offset, and fails if one tells a state that the server
// did not have. It returns the new offset.
func (p *powerProgram) hear(known map[string]*told, from int) int {
	p.t.Helper()
	text := p.read()
	of := func(resource string) *told {
		if known[resource] == nil {
			known[resource] = &told{map[string]line{}}
		}
		return known[resource]
	}
	for l := range strings.Lines(text[from:]) {
		switch f := strings.Fields(l); {
		case len(f) == 2 && f[0] == resetLine:
			clear(of(f[1]).last)
		case len(f) == 5:
			n := line{what: f[0], uid: f[3], rv: f[4]}
			if n.what != "DELETED" && !p.w.wrote(f[1], f[2], n.uid, n.rv) {
				p.t.Fatalf("the handler is told %s, which the server never had", strings.TrimSpace(l))
			}
			of(f[1]).last[f[2]] = n
		}
	}
	return len(text)
}

// eventuallyMore waits until the program tells something more.
func (p *powerProgram) eventuallyMore(what string) {
	p.t.Helper()
	size := p.size()
	p.eventually(what, func() bool { return p.size() > size })
}

// remember keeps a copy of the disk.
func (d *powerDisk) remember() {
	d.t.Helper()
	was, err := os.ReadFile(d.image)
	if err != nil {
		d.t.Fatal(err)
	}
	d.was = was
}

// lose makes the disk lose some of the blocks that were written since remember, mounts it
// again, and returns how many. No program may have a file of it open.
func (d *powerDisk) lose(rnd *rand.Rand) int {
	d.t.Helper()
	d.unmount()
	now, err := os.ReadFile(d.image)
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := os.OpenFile(d.image, os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	block, written := []int{512, 4096}[rnd.IntN(2)], []int(nil)
	for at := 0; at < len(now); at += block {
		if !bytes.Equal(d.was[at:at+block], now[at:at+block]) {
			written = append(written, at)
		}
	}
	rnd.Shuffle(len(written), func(i, j int) { written[i], written[j] = written[j], written[i] })
	written = written[:min(len(written), 1<<rnd.IntN(12))] // from one to 2,048
	for _, at := range written {
		if _, err := f.WriteAt(d.was[at:at+block], int64(at)); err != nil {
			d.t.Fatal(err)
		}
	}
	d.was = nil
	d.repair()
	return len(written)
}

// wrote says whether the server had this version of an object.
func (w *writer) wrote(resource, key, uid, rv string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.had[fmt.Sprint(resource, " ", key, " ", uid, " ", rv)]
}
