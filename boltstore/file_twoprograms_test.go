package boltstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// program is one of the programs of TestTwoPrograms: its open file, and what it has
// committed.
type program struct {
	db    *DB
	s     *Claimed
	wrote map[string]bool
}

// yard is a folder in which programs and an operator work. It knows each file by the
// commits to it, even after the operator has moved it.
type yard struct {
	t      *testing.T
	r      *rand.Rand
	path   string
	keyset string // its file
	n      int
	live   []*program
	// moved are the operator's names of files. dead is the content of files that no
	// program has open, by a key unique to the file.
	moved []string
	dead  map[string]map[string]bool
	log   []string
	in    bool // in an operation of a DB: what happens meanwhile does not nest
	over  bool // nothing more happens
}

func (y *yard) logf(format string, args ...any) { y.log = append(y.log, fmt.Sprintf(format, args...)) }

func (y *yard) options() Options {
	silent := logr.Discard()
	return Options{Keyset: seal.File(y.keyset), Logger: &silent, keepCorrupt: 1 << 20, LockTimeout: -1,
		op: func(op, _ string) error {
			// A file that is moved before it got its name back is a copy.
			if y.in && op != "exchange" && y.r.IntN(8) == 0 {
				y.in = false
				y.logf("  at %s:", op)
				y.outside()
				y.in = true
			}
			return nil
		}, step: func(name string) error {
			if name == "begin" && !y.over { // Open gives the file a new data key
				y.logf("a new data key")
				y.in = true
			}
			return nil
		}}
}

// beside runs an operation; other programs run theirs in the middle of it.
func (y *yard) beside(fn func() error) error {
	y.in = true
	defer func() { y.in = false }()
	return fn()
}

// outside is a step of the operator, or the start of another program.
func (y *yard) outside() {
	switch y.r.IntN(4) {
	case 0: // away
		y.n++
		to := fmt.Sprintf("%s.moved-%d", y.path, y.n)
		if os.Rename(y.path, to) == nil {
			y.logf("moved to %s", filepath.Base(to))
			y.moved = append(y.moved, to)
		}
	case 1: // back, where nothing is: a link replaces nothing
		if len(y.moved) == 0 {
			return
		}
		i := y.r.IntN(len(y.moved))
		if from := y.moved[i]; os.Link(from, y.path) == nil {
			if err := os.Remove(from); err != nil {
				y.t.Fatal(err)
			}
			y.moved = append(y.moved[:i], y.moved[i+1:]...)
			y.logf("%s is back", filepath.Base(from))
		}
	case 2: // in osfile.Exchange
		if len(y.moved) == 0 {
			return
		}
		if other := y.moved[y.r.IntN(len(y.moved))]; osfile.Exchange(other, y.path) == nil {
			y.logf("exchanged for %s", filepath.Base(other))
		}
	default:
		y.begin()
	}
}

// begin starts a program that opens the path.
func (y *yard) begin() {
	if len(y.live) == 3 {
		return
	}
	was, o := y.in, y.options()
	y.in = false
	defer func() { y.in = was }()
	db, err := Open(y.path, o)
	y.in = false
	if errors.Is(err, ErrLocked) {
		return
	}
	if err != nil {
		y.t.Fatalf("open: %v\n%s", err, strings.Join(y.log, "\n"))
	}
	s, err := db.Claim(Claim{Source: configMaps, Example: configMap("", "", 1, nil)})
	if err != nil {
		y.t.Fatal(err)
	}
	p := &program{db, s, map[string]bool{}}
	for _, key := range s.ListKeys() {
		p.wrote[key] = true
	}
	for first, want := range y.dead {
		if p.wrote[first] {
			y.same(p, want)
			delete(y.dead, first)
		}
	}
	y.logf("a program begins with %d", len(p.wrote))
	y.live = append(y.live, p)
	y.write(p)
}

func (y *yard) write(p *program) {
	y.n++
	name := fmt.Sprint("cm", y.n)
	if err := p.s.Add(configMap("ns", name, 1, nil)); err != nil {
		y.t.Fatalf("write: %v\n%s", err, strings.Join(y.log, "\n"))
	}
	p.wrote["ns/"+name] = true
}

func (y *yard) same(p *program, want map[string]bool) {
	y.t.Helper()
	got := p.s.ListKeys()
	if len(got) != len(want) {
		y.t.Fatalf("%d of %d\n%s", len(got), len(want), strings.Join(y.log, "\n"))
	}
	for _, key := range got {
		if !want[key] {
			y.t.Fatalf("%s is another's\n%s", key, strings.Join(y.log, "\n"))
		}
	}
}

// step is a step of one program.
func (y *yard) step() {
	if len(y.live) == 0 {
		y.begin()
		return
	}
	i := y.r.IntN(len(y.live))
	p := y.live[i]
	var err error
	what := ""
	switch y.r.IntN(6) {
	case 0, 1:
		what, err = "compact", y.beside(func() error { _, err := p.db.Compact(context.Background(), nil); return err })
	case 2:
		what, err = "rotate the keyset", seal.Rotate(y.keyset)
	case 3:
		what = "end"
		y.same(p, p.wrote)
		p.s.Release()
		err = p.db.Close()
		y.live = append(y.live[:i], y.live[i+1:]...)
		for key := range p.wrote {
			y.dead[key] = p.wrote
			break
		}
	case 4:
		y.outside()
		return
	default:
		y.write(p)
		return
	}
	y.logf("%s: %v", what, err)
	if err != nil && !errors.Is(err, ErrMoved) {
		y.t.Fatalf("%s\n%s", err, strings.Join(y.log, "\n"))
	}
}

// TestTwoPrograms: programs open, compact and close files that were at one path
// one after the other. An operator moves the files away, back, and in exchange for one
// another, even in the middle of these operations. At the end each committed file is
// there with exactly its content.
func TestTwoPrograms(t *testing.T) {
	needsExchange(t)
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			y := &yard{t: t, r: rand.New(rand.NewPCG(seed, 11)), path: testPath(t), dead: map[string]map[string]bool{}}
			y.keyset = filepath.Join(t.TempDir(), "keyset.json")
			if err := seal.Generate(y.keyset); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				y.step()
			}
			for _, p := range y.live {
				y.same(p, p.wrote)
				p.s.Release()
				if err := p.db.Close(); err != nil {
					t.Error(err)
				}
				for key := range p.wrote {
					y.dead[key] = p.wrote
					break
				}
			}
			y.live, y.over = nil, true
			for _, path := range append(y.moved, y.path) {
				if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
					continue
				}
				y.path = path
				y.begin()
				p := y.live[0]
				y.live, y.in = nil, false
				closeTest(t, p.db)
			}
			if len(y.dead) > 0 {
				t.Errorf("lost: %v\n%s", y.dead, strings.Join(y.log, "\n"))
			}
		})
	}
}

// needsExchange skips a test that exchanges two names in one step.
func needsExchange(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("names cannot be exchanged in one step") // only linux and darwin have the call
	}
}
