package boltstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/internal/beside"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/disktest"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// disk watches a folder and knows what a power failure may leave of it. It is called
// before each operation on files.
type disk struct {
	t *testing.T
	*disktest.Disk
	states map[string]state // by content
	ops    []string
}

// state is what a crash leaves of the folder.
type state struct {
	at string
	disktest.State
}

func newDisk(t *testing.T, dir string) *disk {
	d, err := disktest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return &disk{t: t, Disk: d, states: map[string]state{}}
}

// before is called before an operation. The previous operation has ended.
func (d *disk) before(op, path string) error {
	now, err := d.Before(op, path)
	if err != nil {
		d.t.Fatal(err)
	}
	at := fmt.Sprintf("%d: before %s %s", len(d.ops)+1, op, strings.TrimPrefix(path, d.Dir))
	d.ops = append(d.ops, op)
	for _, names := range []map[string]*disktest.File{now, d.Durable} {
		for _, read := range []func(*disktest.File) ([]byte, error){
			(*disktest.File).Content, (*disktest.File).Certain,
		} {
			s := state{at, disktest.State{Names: names, Files: map[*disktest.File][]byte{}}}
			sum := sha256.New()
			for _, name := range sortedKeys(names) {
				f := names[name]
				if s.Files[f], err = read(f); err != nil {
					d.t.Fatal(err)
				}
				fmt.Fprintf(sum, "%s %d %x", name, d.ID(f), sha256.Sum256(s.Files[f]))
			}
			if id := hex.EncodeToString(sum.Sum(nil)); d.states[id].Files == nil {
				d.states[id] = s
			}
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// readSmall returns the whole content as text. The file must be sound.
func readSmall(t *testing.T, db *DB) string {
	t.Helper()
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, st := range states {
		s, err := db.View(st.Source)
		if err != nil {
			t.Fatal(err)
		}
		objs, err := s.ListErr()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, o := range objs {
			lines = append(lines, fmt.Sprint(o))
		}
		p, err := newClaimed(s).Delivery.ServerPage(nil, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range p.Objects {
			lines = append(lines, fmt.Sprint("shown ", o))
		}
		for _, note := range notedOf(t, s) {
			lines = append(lines, "noted "+note)
		}
		slices.Sort(lines) // the order is that of the keys
		for _, e := range journalFrom(t, newClaimed(s), 1) {
			lines = append(lines, fmt.Sprint(e.Seq, e.Type, e.Key))
		}
		hs, err := s.Handlers()
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hs {
			lines = append(lines, fmt.Sprint(h.Name, h.Pending, h.Deleted, h.Reset))
		}
		fmt.Fprintln(&b, st.Source, st.ResourceVersion, st.Seq, st.Told, strings.Join(lines, "\n"))
	}
	return b.String()
}

// TestCrashAtEachOperation ends a program, or cuts the power, before each operation on
// files of everything that makes, replaces or changes a file as a whole. The next Open
// succeeds with all of the content, sets nothing aside and removes leftovers. Each
// operation is also made to fail.
//
// A power failure has four extremes: unsynced writes are there or not, and so are names
// that the folder has got or lost since its sync. bbolt's writes are cut between
// transactions only. Writes to a file without its final name do not matter before the
// rename. In a file in use, bbolt itself syncs data pages before the page that points
// at them. TestPowerFailure in tests/wake cuts the power of a real file system at
// random moments, even within writes. The kill rounds there end only the process.
func TestCrashAtEachOperation(t *testing.T) {
	ks := sealtest.Keyset()
	rotated := filepath.Join(t.TempDir(), "keyset.json")
	if err := seal.Generate(rotated); err != nil {
		t.Fatal(err)
	}
	opened := func(then func(db *DB) error) func(path string, o Options) error {
		return func(path string, o Options) error {
			db, err := Open(path, o)
			if err != nil {
				return err
			}
			if then != nil {
				err = then(db)
			}
			db.files.Before = nil // what follows is not part of it
			return errors.Join(err, db.Close())
		}
	}
	withHeader := func(change func(h *header)) func(path string) {
		return func(path string) { changeHeader(t, path, change) }
	}
	for _, tc := range []crashCase{
		{name: "creation", run: opened(nil), ops: "create write sync link remove sync"},
		{name: "creation, encrypted, without syncs", with: Options{Keyset: ks, Durability: DurabilityProcess},
			run: opened(nil), ops: "create write sync link remove sync commit"},
		{name: "creation, without links", noLinks: true, run: opened(nil),
			ops: "create write sync link create rename sync"},
		{name: "compaction", filled: true, run: opened(func(db *DB) error {
			_, err := db.Compact(t.Context(), nil)
			return err
		}), ops: "create write sync rename sync"},
		{name: "compaction, without syncs", filled: true, with: Options{Durability: DurabilityProcess},
			run: opened(func(db *DB) error {
				_, err := db.Compact(t.Context(), nil)
				return err
			}), ops: "commit create write sync rename sync"},
		{name: "encryption", filled: true, with: Options{Keyset: ks}, run: opened(nil),
			ops: "create write sync rename sync"},
		{name: "encryption, without syncs", filled: true, with: Options{Keyset: ks, Durability: DurabilityProcess},
			run: opened(nil), ops: "create write sync write sync rename sync"},
		{name: "decryption", filled: true, before: Options{Keyset: ks}, with: Options{Keyset: ks, decrypt: true},
			run: opened(nil), ops: "create write sync rename sync"},
		{name: "rotation", filled: true, before: Options{Keyset: ks}, with: Options{Keyset: ks},
			mend: withHeader(keysDue), run: opened(nil), ops: "create write sync rename sync"},
		{name: "another primary key", filled: true, rotates: true, before: Options{Keyset: seal.File(rotated)},
			with: Options{Keyset: seal.File(rotated)},
			run:  opened(nil), ops: "commit create write sync rename sync"},
		{name: "verification after an unclean boot", filled: true, with: Options{Durability: DurabilityProcess},
			mend: withHeader(ofUncleanBoot), run: opened(nil), ops: "create write write write sync rename sync"},
		{name: "salvage", filled: true, run: func(path string, o Options) error {
			return salvageAt(path, o)
		}, ops: "create write write write sync link rename sync"},
		{name: "salvage, without links", noLinks: true, filled: true,
			ops: "create write write write sync link create sync rename sync",
			run: func(path string, o Options) error { return salvageAt(path, o) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			made := t.TempDir()
			if tc.filled {
				tc.fill(t, filepath.Join(made, "test.db"))
				if tc.rotates {
					if err := seal.Rotate(rotated); err != nil {
						t.Fatal(err)
					}
				}
			}
			crashes := tc.crash(t, made)
			failures := tc.fail(t, made)
			t.Logf("%d states after a crash, %d failures", crashes, failures)
		})
	}
}

// crashCase is something that makes, replaces or changes a file as a whole.
type crashCase struct {
	name   string
	filled bool
	before Options
	with   Options
	mend   func(path string) // repairs what was filled
	run    func(path string, o Options) error
	ops    string // operations that must have occurred

	rotates bool // the keyset gets another primary key once the file is filled
	noLinks bool // the file system has no links

	want string // content, see readSmall
}

// fill makes the file and notes its content.
func (tc *crashCase) fill(t *testing.T, path string) {
	fillSmall(t, path, tc.before)
	db, err := Open(path, tc.before)
	if err != nil {
		t.Fatal(err)
	}
	tc.want = readSmall(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if tc.mend != nil {
		tc.mend(path)
	}
}

// crash runs the case in a copy of the folder, and verifies the state after a crash before
// each operation.
func (tc *crashCase) crash(t *testing.T, made string) (states int) {
	dir := copied(t, made)
	d := newDisk(t, dir)
	o := tc.with
	o.op = func(op, path string) error { return errors.Join(d.before(op, path), tc.linked(op)) }
	if err := tc.run(filepath.Join(dir, "test.db"), o); err != nil {
		t.Fatal(err)
	}
	_ = d.before("end", "")
	at := 0
	for _, op := range strings.Fields(tc.ops) {
		i := slices.Index(d.ops[at:], op)
		if i < 0 {
			t.Fatalf("the operations were %q, and not %q", d.ops, tc.ops)
		}
		at += i + 1
	}
	for _, s := range d.states {
		crashed := t.TempDir()
		if err := s.Make(crashed); err != nil {
			t.Fatal(err)
		}
		tc.verify(t, "crash "+s.at, crashed)
	}
	return len(d.states)
}

// fail runs the case once for each operation, which fails, and verifies the state after it.
func (tc *crashCase) fail(t *testing.T, made string) (failures int) {
	for k := 1; ; k++ {
		dir := copied(t, made)
		errOp := errors.New("the disk fails")
		n, at := 0, ""
		o := tc.with
		o.op = func(op, path string) error {
			if n++; n == k {
				at = fmt.Sprint("failure ", k, ": ", op)
				return errOp
			}
			return tc.linked(op)
		}
		err := tc.run(filepath.Join(dir, "test.db"), o)
		if n < k {
			if err != nil {
				t.Fatal(err)
			}
			return failures
		}
		if err != nil && !errors.Is(err, errOp) {
			t.Fatalf("%s: %v", at, err)
		}
		failures++
		tc.verify(t, at, dir)
	}
}

func (tc *crashCase) linked(op string) error {
	if op == "link" && tc.noLinks {
		return errors.ErrUnsupported
	}
	return nil
}

// verify opens the file in dir, which must have all of the content and nothing beside it
// but files that were set aside before.
func (tc *crashCase) verify(t *testing.T, what, dir string) {
	t.Helper()
	path := filepath.Join(dir, "test.db")
	db, err := Open(path, tc.with)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got := readSmall(t, db); got != tc.want || len(db.AsidePaths()) > 0 ||
		db.Encrypted() != db.converting().wanted() || db.KeysDue() {
		t.Fatalf("%s: set aside %q, encrypted %v; it has %.500q, not %.500q", what, db.AsidePaths(), db.Encrypted(),
			got, tc.want)
	}
	if err := db.Close(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, f := range filesIn(t, dir) {
		if f != path && !strings.HasPrefix(filepath.Base(f), "test.db"+beside.AsideInfix) {
			t.Errorf("%s: %s was left behind", what, f)
		}
	}
}
