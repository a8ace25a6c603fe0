package wake

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2/textlogger"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// TestPowerFailure cuts the power of the file's disk while a program with durable
// handlers writes: in the middle of commits, of a large relist, of compactions and of
// rotations. The handlers note their calls on another disk. All of these changes had been
// committed: the file has them, is sound, and nothing was set aside. The program goes on
// without a full read, and in the end no change has been left out.
//
// WAKE_POWER says how many times, 8 by default.
func TestPowerFailure(t *testing.T) {
	t.Parallel()
	takePlace(t)
	n := times(t, "WAKE_POWER", 8, 4)
	p := newPowerProgram(t, fullSyncs, 128<<20)
	srv, w := p.srv, p.w
	p.start()
	p.until(w.mark()) // the first sync
	cut := map[string]int{}
	for i := range n {
		mode := []string{"commits", "relist", compacting, rotating}[i%4]
		w.resume()
		p.churn = ""
		if mode == compacting {
			p.churn = mode
		}
		p.kill()
		if mode == rotating {
			if err := seal.Rotate(p.keys); err != nil {
				t.Fatal(err)
			}
		}
		if mode == "relist" {
			pause(p.rnd, 600*time.Millisecond) // what differs
			if err := srv.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			p.start()
			p.eventually("a list", func() bool { return len(srv.FullReads(t, since)) > 0 })
			pause(p.rnd, 60*time.Millisecond)
		} else {
			size, was := p.size(), p.stat()
			p.start()
			if mode != rotating {
				p.eventually("an event", func() bool { return p.size() > size })
				pause(p.rnd, 500*time.Millisecond)
				was = p.stat()
			} else if i%8 >= 4 { // the file gets a new data key as it is opened
				pause(p.rnd, 200*time.Millisecond)
			}
			if (mode == compacting || mode == rotating) && i%8 < 4 {
				p.untilReplaced(was)
				cut["right after a new file took the place"]++
			}
		}
		since := time.Now()
		p.disk.cut()
		p.kill()
		w.pause()
		p.disk.restore()
		if left, _ := filepath.Glob(filepath.Join(p.disk.dir, ".*.new-*")); len(left) > 0 {
			cut["with a new file half made"]++
		}
		half, err := p.untold()
		if err != nil {
			t.Fatalf("round %d, %s: %v", i+1, mode, err)
		}
		if half {
			cut["with a relist half written"]++
		}
		p.churn = ""
		p.start()
		p.untilIdle(w.mark()) // handlers are told a list's objects before it has ended
		if reads := srv.FullReads(t, since); len(reads) > 0 && mode != "relist" {
			t.Fatalf("round %d, %s: everything was read again:\n%s", i+1, mode, strings.Join(reads, "\n"))
		}
		cut[mode]++
	}
	p.kill()
	p.start()
	p.untilIdle(w.mark())
	p.kill()
	w.verifyFile(p.db, w.toldWithoutGap(p.told))
	t.Logf("power cut: %v; %d writes, %d lines", cut, w.writes, strings.Count(p.read(), "\n"))
}

// TestPowerFailureControl: without syncs something is lost, or TestPowerFailure
// could not fail.
func TestPowerFailureControl(t *testing.T) {
	p := newPowerProgram(t, noSyncs, 128<<20)
	for i := range 5 {
		size := p.size()
		p.w.resume()
		p.start()
		p.eventually("an event", func() bool { return p.size() > size })
		pause(p.rnd, 500*time.Millisecond)
		p.disk.cut()
		p.kill()
		p.w.pause()
		p.disk.restore()
		if _, err := p.untold(); err != nil {
			t.Logf("round %d: %v", i+1, err)
			return
		}
	}
	t.Fatal("commits that are not synced have survived a power failure, five times")
}

// powerProgram is a program whose file is on a disk of its own.
type powerProgram struct {
	*program
	disk  *powerDisk
	srv   target
	w     *writer
	rnd   *rand.Rand
	churn string
	boot  string // names the machine's boot, "" for the true one
	keys  string // the keyset's file
	o     boltstore.Options
	// logged is the log of the files that are opened with o.
	logged *os.File
}

func newPowerProgram(t *testing.T, durability string, size int64, options ...string) *powerProgram {
	disk := newPowerDisk(t, size, options...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	srv := newSimulator(t)
	w := newWriter(t, srv.Config(), seed)
	w.fill(150)
	w.indexers = library.indexers
	keys := filepath.Join(t.TempDir(), "keyset.json")
	if err := seal.Generate(keys); err != nil {
		t.Fatal(err)
	}
	w.keyset = seal.File(keys)
	logged, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logged.Close() }) // nothing more is read from it
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logged)))
	pp := &powerProgram{disk: disk, srv: srv, w: w, rnd: rand.New(rand.NewPCG(seed, 1)), keys: keys, logged: logged,
		o: boltstore.Options{Keyset: w.keyset, Logger: &logger}}
	if durability == noSyncs {
		pp.o.Durability = boltstore.DurabilityProcess
	}
	what := killed{indexers: library.indexers, cmd: func(db, kubeconfig string) *exec.Cmd {
		cmd := library.cmd(db, kubeconfig)
		cmd.Env = append(cmd.Env, envHandler+"="+durableHandlers, envDurability+"="+durability, envKeyset+"="+keys,
			envChurn+"="+pp.churn, envBoot+"="+pp.boot)
		return cmd
	}}
	pp.program = &program{t: t, what: what, db: filepath.Join(disk.dir, "wake.db"), kubeconfig: srv.Kubeconfig(t),
		told: filepath.Join(t.TempDir(), "told")}
	t.Cleanup(pp.kill)
	return pp
}

// untold returns an error if the file lacks a change that was told, and says whether a list is half
// written: what was told of its pages is newer than the resume point.
func (p *powerProgram) untold() (half bool, err error) {
	told := map[string]uint64{}
	for _, l := range p.w.lines(p.told) {
		if f := strings.Fields(l); len(f) == 5 {
			told[f[1]] = max(told[f[1]], p.version(f[4]))
		}
	}
	db, err := boltstore.Open(p.db, p.o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	states, err := db.States()
	if err != nil {
		return false, err
	}
	if aside := db.AsidePaths(); len(aside) > 0 {
		return false, fmt.Errorf("set aside: %v", aside)
	}
	if r, err := db.Check(); err != nil || !r.Sound() {
		return false, errors.Join(fmt.Errorf("it is not sound: %+v", r), err)
	}
	for _, st := range states {
		half = half || st.NewestPage != ""
		has := max(p.version(st.ResourceVersion), p.version(st.NewestPage))
		if t := told[st.Source.Resource]; has < t {
			return false, fmt.Errorf("%s is at %d, and handlers were told of %d", st.Source, has, t)
		}
		delete(told, st.Source.Resource)
	}
	if len(told) > 0 {
		return false, fmt.Errorf("it has nothing of what handlers were told: %v", told)
	}
	return half, nil
}

func (p *powerProgram) version(rv string) uint64 {
	p.t.Helper()
	if rv == "" {
		return 0
	}
	v, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (p *powerProgram) stat() os.FileInfo {
	p.t.Helper()
	st, err := os.Stat(p.db)
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

// untilReplaced polls, without pauses, until another file has the name.
func (p *powerProgram) untilReplaced(was os.FileInfo) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if is, err := os.Stat(p.db); err == nil && !os.SameFile(was, is) {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the file was not replaced")
		}
	}
}
