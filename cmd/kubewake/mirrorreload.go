package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// reloads reads the config file again at each SIGHUP, until ctx ends. If the terminal
// that the process was started from is gone, it calls end.
func (m *mirror) reloads(ctx context.Context, flags *pflag.FlagSet, args []string, end func()) {
	if m.hangups == nil && m.configFile == "" && signal.Ignored(syscall.SIGHUP) { // as nohup asks for
		return
	}
	onHangup(ctx, m.hangups, m.streams.ErrOut, end, func() {
		if m.configFile == "" {
			m.logf("SIGHUP: there is nothing to reload, since there is no --config; certificates are read again " +
				"when they change")
			return
		}
		m.reload(ctx, flags, args)
	})
}

// onHangup calls reload at each SIGHUP, until ctx ends. If the terminal that the process
// was started from is gone, it calls end. hangups replace the process's signals, for
// tests.
func onHangup(ctx context.Context, hangups <-chan os.Signal, errOut io.Writer, end, reload func()) {
	if hangups == nil {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGHUP)
		defer signal.Stop(ch)
		hangups = ch
	}
	started := isTerminal(errOut)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		if started && !isTerminal(errOut) {
			end()
			return
		}
		reload()
	}
}

// reload makes the mirror keep what the config file now asks for. The file may be on a
// network file system that hangs.
func (m *mirror) reload(ctx context.Context, flags *pflag.FlagSet, args []string) {
	w, err := during(ctx, func() (wanted, error) { return m.again(flags, args) })
	switch {
	case ctx.Err() != nil:
	case err != nil:
		m.logf("reload: the old settings go on: %s", oneLine(err))
	case w.equal(*m.wanted.Load()):
		m.logf("reload: %s asks for the same as before", m.configFile)
	default:
		m.logf("reload: %s asks for %s", m.configFile, w)
		m.wanted.Store(&w)
		select {
		case m.rewanted <- struct{}{}:
		default: // it is to come
		}
	}
}

func (w wanted) String() string {
	text := strings.Join(w.types, ", ")
	if !w.all {
		text += " -n " + w.namespace
	}
	if w.selector != "" {
		text += " -l " + w.selector
	}
	return text
}

// kept names a source that runs.
type kept struct {
	gvr                 schema.GroupVersionResource
	namespace, selector string
}

// keeper runs the sources that a mirror keeps, in one life of the file.
type keeper struct {
	*mirror
	ctx     context.Context
	end     context.CancelCauseFunc // of the life
	db      *boltstore.DB
	cfg     *rest.Config
	cluster string
	offer   func() // begins to serve others; it is called once no read of the file waits for it
	running map[kept]*running
	wg      sync.WaitGroup
}

// running is a source whose informer runs.
type running struct {
	*source
	named
	stop func() // and wait
}

// named is a type and the argument that names it.
type named struct {
	resource
	arg string
}

// keep keeps the wanted types until the life ends. If they cannot be kept, since the
// server does not know one of them, those wanted before stay, if there are any.
func (k *keeper) keep() error {
	var now *wanted      // what is kept
	var before []*wanted // what was wanted before anything was kept, and is not refused
	for {
		w := k.wanted.Load()
		if w == now {
			select {
			case <-k.ctx.Done():
				return context.Cause(k.ctx)
			case <-k.rewanted:
				continue
			}
		}
		interrupted, err := k.tryToKeep(*w)
		back := now
		if n := len(before); back == nil && n > 0 {
			back = before[n-1]
		}
		switch {
		case k.ctx.Err() != nil:
			return context.Cause(k.ctx)
		case err == nil:
			now = w
		case interrupted:
			if now == nil && k.wanted.Load() != w {
				before = append(before, w)
			}
		case back == nil:
			k.end(err)
			return err
		default:
			k.logf("reload: the old settings go on: %s", oneLine(err))
			if k.wanted.CompareAndSwap(w, back) && now == nil { // otherwise it was read again
				before = before[:len(before)-1]
			}
		}
	}
}

// tryToKeep is settle, but reading the config again interrupts it.
func (k *keeper) tryToKeep(w wanted) (interrupted bool, err error) {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	settled := make(chan error, 1)
	go func() { settled <- k.settle(ctx, w) }()
	select {
	case err := <-settled:
		return false, err
	case <-k.rewanted:
		cancel()
		err := <-settled
		return errors.Is(err, context.Canceled), err
	}
}

// settle stops the sources that are not wanted, and starts those that are. Before it knows
// all types it changes nothing. If a source cannot be started, those that ran before run
// again.
func (k *keeper) settle(ctx context.Context, w wanted) error {
	known, order, err := k.types(ctx, w)
	if err != nil {
		return err
	}
	before := maps.Clone(k.running)
	for at, run := range before {
		if _, ok := known[at]; !ok {
			k.stop(at)
			k.logf("%s: no longer mirrored; its objects stay in the file", run.name)
		}
	}
	for _, at := range order {
		if k.running[at] != nil {
			continue
		}
		if err := k.start(at, known[at]); err != nil {
			return errors.Join(err, k.restore(before))
		}
	}
	k.stats.known.Store(true)
	k.offer()
	k.wg.Go(func() { k.progress(k.ctx) })
	return nil
}

// restore makes the sources run that ran before, and no others. If one of them cannot
// be started, it ends the life.
func (k *keeper) restore(before map[kept]*running) error {
	for at := range maps.Clone(k.running) {
		if before[at] == nil {
			k.stop(at)
		}
	}
	for at, run := range before {
		if k.running[at] != nil {
			continue
		}
		if err := k.start(at, run.named); err != nil {
			k.end(err)
			return err
		}
		k.logf("%s: mirrored again", run.name)
	}
	return nil
}

// stop ends a source, and waits.
func (k *keeper) stop(at kept) {
	run := k.running[at]
	run.stop()
	delete(k.running, at)
	k.stats.remove(run.source)
}

// start runs an informer.
func (k *keeper) start(at kept, n named) error {
	src, err := k.informer(k.db, k.cfg, n.resource, at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(k.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { src.inf.RunWithContext(ctx) })
	wg.Go(func() { k.follow(ctx, k.cfg, src, n.resource, n.arg, k.end) })
	wg.Go(func() { k.describeAgain(ctx, k.cfg, src, n.resource) })
	k.running[at] = &running{src, n, func() { cancel(); wg.Wait() }}
	return nil
}

// close ends all sources, and waits.
func (k *keeper) close() {
	k.end(nil)
	for _, run := range k.running {
		run.stop()
	}
	k.wg.Wait()
	for at, run := range k.running {
		if run.unserved.Load() {
			k.retire(at, run)
		}
	}
}

// retire tells the deletes of a source's objects, which the server serves no longer in this
// version or scope, and removes them: the mirror goes on with another source.
func (k *keeper) retire(at kept, run *running) {
	_, example, err := listWatch(k.cfg, run.resource, at.namespace, at.selector)
	if err == nil {
		err = k.empty(run.source, example)
	}
	if err != nil {
		k.logf("%s: its objects stay in the file: %s", run.name, oneLine(err))
	}
}

func (k *keeper) empty(src *source, example runtime.Object) error {
	s, err := k.db.Claim(boltstore.Claim{Source: src.inf.Store().Source(), Example: example,
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	if err != nil {
		return err
	}
	defer s.Release()
	objs, err := s.ListErr()
	if err != nil {
		return err
	}
	for handler, i := k.counter(src), 0; i < len(objs); i++ {
		handler.OnDelete(objs[i])
	}
	return s.Upstream.Empty()
}
