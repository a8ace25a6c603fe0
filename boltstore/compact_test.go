package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

func size(t testing.TB, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// contents returns everything that a closed file serves, as text.
func contents(t testing.TB, path string) string {
	t.Helper()
	db := openTest(t, path, Options{ReadOnly: true})
	defer closeTest(t, db)
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, st := range states {
		v, err := db.View(st.Source)
		if err != nil {
			t.Fatal(err)
		}
		objs, err := v.ListErr()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, st.Source, st.ResourceVersion, st.Seq, len(objs))
		for _, o := range objs {
			fmt.Fprintln(&b, o)
		}
	}
	return b.String()
}

func TestCompactOffline(t *testing.T) {
	path := testPath(t)
	wasteful(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	content, before := contents(t, path), size(t, path)
	var reports int
	var last int64
	c, err := Compact(t.Context(), path, Options{maxCommitBytes: 1 << 15, AllowUnsafePath: true},
		func(done, total int64) {
			if done < last || done > total {
				t.Errorf("progress %d of %d after %d", done, total, last)
			}
			last, reports = done, reports+1
		})
	if err != nil {
		t.Fatal(err)
	}
	if after := size(t, path); c.Before != before || c.After != after || after > before/2 || reports < 3 {
		t.Fatalf("%+v, was %d, is %d, %d reports", c, before, after, reports)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v", st.Mode())
	}
	noLeftovers(t, path)
	if got := contents(t, path); got != content {
		t.Fatal("the content has changed")
	}
	db := openTest(t, path, Options{})
	if r, err := db.Check(); err != nil || !r.Sound() || len(r.Sources) != 2 ||
		r.Sources[0].Entries+r.Sources[1].Entries != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := Compact(t.Context(), path, Options{LockTimeout: -1}, nil); !errors.Is(err, ErrLocked) {
		t.Fatalf("of an open file: %v", err)
	}
}

func TestCompactRefuses(t *testing.T) {
	path := testPath(t)
	if _, err := Compact(t.Context(), path, Options{}, nil); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), path) {
		t.Fatalf("missing: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("hello ", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Compact(t.Context(), path, Options{}, nil); !errors.Is(err, ErrForeign) {
		t.Fatalf("foreign: %v", err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Fatalf("it left %v", files)
	}
}

// TestCompactLooksAtThePath: Compact refuses what Open refuses.
func TestCompactLooksAtThePath(t *testing.T) {
	path := testPath(t)
	wasteful(t, path)
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil || !osfile.KeepsModes {
		t.Skip("who can write a folder is not in its mode here: ", err)
	}
	before := size(t, path)
	if _, err := Compact(t.Context(), path, Options{}, nil); !errors.Is(err, ErrUnsafe) ||
		!strings.Contains(err.Error(), "AllowUnsafePath") {
		t.Errorf("in a folder that all can write: %v", err)
	}
	if size(t, path) != before {
		t.Error("compacted all the same")
	}
	if _, err := Compact(t.Context(), path, Options{AllowUnsafePath: true}, nil); err != nil {
		t.Error(err)
	}
}

// TestCompactAfterUncleanBoot: a file that was not verified yet is not compacted, and
// the error does not tell the user to give it up.
func TestCompactAfterUncleanBoot(t *testing.T) {
	path := testPath(t)
	wasteful(t, path)
	changeHeader(t, path, ofUncleanBoot)
	_, err := Compact(t.Context(), path, Options{}, nil)
	if !errors.Is(err, errUncleanBoot) || strings.Contains(err.Error(), "move") ||
		!strings.Contains(err.Error(), "open it with the program") {
		t.Error(err)
	}
	closeTest(t, openTest(t, path, Options{}))
	if _, err := Compact(t.Context(), path, Options{}, nil); err != nil {
		t.Errorf("after it was verified: %v", err)
	}
}

// TestCompactSyncs: commits of an offline compaction are synced, and the header does
// not say that the file is in use.
func TestCompactSyncs(t *testing.T) {
	o := offline(Options{Durability: DurabilityProcess, ReadOnly: true, CollectAfter: time.Hour})
	if b := boltOptions(o); b.NoSync || b.ReadOnly {
		t.Errorf("%+v", b)
	}
}

// TestCompactSteps makes a compaction fail at each of its steps, and opens the files that
// a kill there would leave. Either way the file has the old content, without leftovers.
func TestCompactSteps(t *testing.T) {
	made := testPath(t)
	wasteful(t, made)
	content := contents(t, made)
	image, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	errStep := errors.New("step")
	for k := 0; ; k++ {
		path := testPath(t)
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
		db := openTest(t, path, Options{maxCommitBytes: 1 << 16})
		crashed, n, at := "", 0, ""
		db.opts.step = func(step string) error {
			if n++; n <= k {
				return nil
			}
			at = step
			crashed = filepath.Join(t.TempDir(), "test.db")
			copyDir(t, filepath.Dir(path), filepath.Dir(crashed))
			return errStep
		}
		_, err := db.Compact(t.Context(), nil)
		if crashed == "" {
			if err != nil || k < 6 {
				t.Fatalf("%d steps: %v", k, err)
			}
			closeTest(t, db)
			break
		}
		if !errors.Is(err, errStep) {
			t.Fatalf("step %d, %s: %v", k, at, err)
		}
		// Alive after the error: the file still takes changes.
		s := claimTest(t, db, Claim{Indexers: indexers})
		if err := s.Add(configMap("ns", "after", 9000, nil)); err != nil {
			t.Fatal(err)
		}
		closeTest(t, db)
		noLeftovers(t, path)
		db = openTest(t, path, Options{})
		if obj, _, err := claimTest(t, db, Claim{Indexers: indexers}).GetByKey("ns/after"); err != nil || obj == nil {
			t.Fatalf("step %d, %s: what was committed after it is lost: %v", k, at, err)
		}
		closeTest(t, db)
		// Killed there.
		db = openTest(t, crashed, Options{})
		noLeftovers(t, crashed)
		if len(db.AsidePaths()) > 0 {
			t.Fatalf("step %d, %s: set aside", k, at)
		}
		closeTest(t, db)
		if got := contents(t, crashed); got != content {
			t.Fatalf("step %d, %s: the content has changed", k, at)
		}
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompactUnderLoad compacts repeatedly while others read and write.
func TestCompactUnderLoad(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Millisecond, Durability: DurabilityProcess})
	s := claimTest(t, db, Claim{Indexers: indexers})
	fill(t, s, 500, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				objs, err := s.ListErr()
				if err != nil || len(objs) < 250 {
					t.Errorf("%d objects, %v", len(objs), err)
					return
				}
				if _, ok, err := s.GetByKey("ns/cm00000"); !ok || err != nil {
					t.Errorf("get: %v", err)
				}
			}
		})
	}
	var last int
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := s.Add(configMap("live", fmt.Sprint("o", i%50), 10000+i,
				map[string]string{"words": fmt.Sprint(i)})); err != nil {
				t.Errorf("add: %v", err)
				return
			}
			last = i
		}
	})
	for range 8 {
		if _, err := db.Compact(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
	obj, ok, err := s.GetByKey(fmt.Sprint("live/o", last%50))
	if !ok || err != nil || obj.(*corev1.ConfigMap).ResourceVersion != fmt.Sprint(10000+last) {
		t.Fatalf("the last write is not there: %v %v", obj, err)
	}
}

// TestCompactAndClose: Close ends a compaction that is under way.
func TestCompactAndClose(t *testing.T) {
	path := testPath(t)
	wasteful(t, path)
	content := contents(t, path)
	db := openTest(t, path, Options{maxCommitBytes: 1 << 14})
	begun, closed := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	db.opts.step = func(step string) error {
		once.Do(func() {
			go func() { closed <- db.Close() }()
			<-db.whileOpen.ctx.Done()
			close(begun)
		})
		return nil
	}
	_, err := db.Compact(t.Context(), nil)
	<-begun
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("compact: %v", err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, path)
	if contents(t, path) != content {
		t.Fatal("the content has changed")
	}
}

// TestCompactsByItself: the keeper compacts once above the ratio, and not below it.
func TestCompactsByItself(t *testing.T) {
	for _, tc := range []struct {
		name  string
		o     Options
		keep  int
		times int
	}{
		{name: "above", o: Options{compactRatio: 0.5, compactMinSize: 1 << 16}, keep: 10, times: 1},
		{name: "below", o: Options{compactRatio: 0.5, compactMinSize: 1 << 16}, keep: 1},
		{name: "small", o: Options{compactRatio: 0.5, compactMinSize: 1 << 30}, keep: 10},
		{name: "off", o: Options{compactRatio: -1, compactMinSize: 1 << 16}, keep: 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clk := testingclock.NewFakeClock(time.Unix(1000, 0))
			tc.o.Clock, tc.o.Window, tc.o.Compression = clk, time.Nanosecond, CompressionNone
			path := testPath(t)
			db := openTest(t, path, tc.o)
			times := 0
			db.opts.step = func(step string) error {
				if step == "renamed" {
					times++
				}
				return nil
			}
			s := claimTest(t, db, Claim{})
			fill(t, s, 1000, tc.keep)
			before := size(t, path)
			for i := range 5 {
				clk.Step(keeperEvery)
				if err := s.Add(configMap("ns", "tick", 9000+i, nil)); err != nil {
					t.Fatal(err)
				}
				kept(t, db)
			}
			if times != tc.times {
				t.Fatalf("compacted %d times", times)
			}
			if after := size(t, path); (after < before/2) != (tc.times > 0) {
				t.Fatalf("was %d, is %d bytes", before, after)
			}
		})
	}
}

// TestProgressPanics: a panic of the caller's function ends a compaction with an error.
// It does not count as damage: the file stays as it is.
func TestProgressPanics(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	must(t, s.Add(at(1, "x")))
	if _, err := db.Compact(t.Context(), func(int64, int64) {
		panic("at the bar")
	}); err == nil || !strings.Contains(err.Error(), "at the bar") || errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if all := db.AsidePaths(); len(all) > 0 || db.h.met() != nil {
		t.Error("the file was replaced: ", all)
	}
	must(t, s.Add(at(2, "y")))
}
