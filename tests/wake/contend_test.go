package wake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
)

// envContend has children contend for the file. It begins the names of files to which all
// of them append.
const envContend = "WAKE_CHILD_CONTEND"

// contend keeps the sources in the file, whenever no other process has it, until SIGTERM.
func contend(path, kubeconfig string) error {
	term, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out := map[string]*os.File{}
	for _, name := range []string{"plain", "durable", "idle"} {
		f, err := os.OpenFile(os.Getenv(envContend)+name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		out[name] = f
	}
	cfg, err := childConfig(kubeconfig)
	if err != nil {
		return err
	}
	o := childOptions()
	o.LockTimeout, o.AllowUnsafePath = 50*time.Millisecond, true
	db, err := boltstore.Open(path, o)
	for errors.Is(err, boltstore.ErrLocked) {
		if term.Err() != nil {
			return nil
		}
		db, err = boltstore.Open(path, o)
	}
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for name, src := range listsOf(cfg) {
		inf, err := informer.NewSharedIndexInformer(db, src.lw, src.example, informer.Options{
			Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "label": byLabel},
		})
		if err != nil {
			return err
		}
		if _, err := inf.AddEventHandler(teller(out["plain"], name)); err != nil {
			return err
		}
		durable := durableTeller(out["durable"], name)
		if _, err := inf.AddDurableHandler("test", durable, informer.DurableOptions{Workers: 2}); err != nil {
			return err
		}
		wg.Go(func() { reportIdle(term, out["idle"], inf, name) })
		wg.Go(func() { inf.RunWithContext(term) })
	}
	wg.Wait()
	return db.Close()
}

// TestContend: up to three programs come and go at the same file, by paths of which some are
// links. They end in order or are killed. Whichever has the file tells its handlers what
// the one before has not told: plain handlers the last state of each object, durable ones
// each delete, too.
func TestContend(t *testing.T) {
	t.Parallel()
	takePlace(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	srv := newSimulator(t)
	w := newWriter(t, srv.Config(), seed)
	w.fill(150)
	w.indexers = library.indexers
	base := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db := filepath.Join(base, "real", "wake.db")
	must(os.Mkdir(filepath.Dir(db), 0o700))
	must(os.Symlink("real", filepath.Join(base, "folder")))
	must(os.Symlink("real/wake.db", filepath.Join(base, "link.db")))
	paths := []string{db, filepath.Join(base, "folder", "wake.db"), filepath.Join(base, "link.db")}
	told, kubeconfig := filepath.Join(base, "told-"), srv.Kubeconfig(t)
	errs, err := os.Create(filepath.Join(base, "programs.err"))
	must(err)
	defer errs.Close()
	read := func(name string) string { b, _ := os.ReadFile(told + name); return string(b) }

	programs := make([]*exec.Cmd, 3)
	start := func(i int) {
		programs[i] = exec.Command(os.Args[0])
		programs[i].Env = append(os.Environ(), envDB+"="+paths[rnd.IntN(len(paths))], envKubeconfig+"="+kubeconfig,
			envContend+"="+told, "TMPDIR="+base)
		programs[i].Stderr = errs
		must(programs[i].Start())
	}
	end := func(i int, how syscall.Signal) {
		must(programs[i].Process.Signal(how))
		// it prints its goroutines
		hangs := time.AfterFunc(time.Minute, func() { _ = programs[i].Process.Signal(syscall.SIGQUIT) })
		defer hangs.Stop()
		// it may not have got so far as to wait for the signal
		if err := programs[i].Wait(); err != nil && !strings.HasPrefix(err.Error(), "signal: ") {
			b, _ := os.ReadFile(errs.Name())
			t.Errorf("ended by %s: %v\n%s", how, err, tail(string(b), 4000))
		}
		programs[i] = nil
	}
	defer func() {
		for i, p := range programs {
			if p != nil {
				end(i, syscall.SIGKILL)
			}
		}
	}()
	w.resume()
	steps := 16
	if testing.Short() {
		steps = 8
	}
	for n := range steps {
		switch i := rnd.IntN(len(programs)); {
		case programs[i] == nil:
			start(i)
		case rnd.IntN(2) == 0:
			end(i, syscall.SIGKILL)
		default:
			end(i, syscall.SIGTERM)
		}
		if n%8 == 7 { // a relist
			must(srv.Restart(t.Context()))
		}
		pause(rnd, 500*time.Millisecond)
	}
	w.pause()
	if !slices.ContainsFunc(programs, func(p *exec.Cmd) bool { return p != nil }) {
		start(0)
	}
	for range 2 { // keys are told side by side: others may come after the first markers
		lines, wants := w.mark(), map[string]uint64{}
		for _, l := range lines {
			f := strings.Fields(l)
			wants[f[0]] = version64(t, f[3])
		}
		last := &program{t: t, told: filepath.Join(base, "programs")}
		last.eventually(fmt.Sprint("the handlers to be told ", lines), func() bool {
			plain := read("plain")
			return !slices.ContainsFunc(lines, func(l string) bool {
				return !strings.Contains(plain, l)
			}) && idleAt(t, read("idle"), wants)
		})
	}
	for i, p := range programs {
		if p != nil {
			end(i, syscall.SIGKILL)
		}
	}
	plain, durable := lastTold(t, told+"plain"), w.toldWithoutGap(told+"durable")
	w.verifyFile(db, func(resource string, cached []any) {
		w.toldAll(resource, cached, plain[resource])
		durable(resource, cached)
	})
	t.Logf("%d writes, %d lines of plain handlers", w.writes, strings.Count(read("plain"), "\n"))
}
