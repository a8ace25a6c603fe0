package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// runScenarios are about starting and stopping.
var runScenarios = []scenario{
	{name: "from start to stop", run: func(s *side) {
		early, late := s.handler("early"), s.handler("late")
		s.create("a", "b")
		reg := s.add(early)
		s.state("made")
		s.registered("made: registration", reg)
		s.run()
		s.state("running")
		s.registered("running: registration", reg)
		s.told("running", early)
		lateReg := s.add(late)
		s.settle()
		s.told("late", early, late)
		s.registered("late: registration", lateReg)
		s.create("c")
		s.modify("a")
		s.delete("b")
		s.settle()
		s.state("changed")
		s.told("changed", early, late)
		s.stop()
		s.state("stopped")
		s.registered("stopped: registration", reg)
		s.told("stopped", early, late)
	}},
	{name: "never run", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		reg := s.add(h)
		s.settle()
		s.state("never")
		s.registered("never: registration", reg)
		s.told("never", h)
		s.note("the server is asked for", s.src.asked)
		s.inf.GetController().Run(nil) // does nothing
		s.inf.GetController().RunWithContext(context.Background())
		s.note("shut down", cache.ShutDownEventHandler(s.inf, reg))
	}},
	{name: "stopped before the start", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		reg := s.add(h)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.inf.RunWithContext(ctx)
		s.settle()
		s.note("synced, stopped", s.inf.HasSynced(), s.inf.IsStopped()) // client-go may have listed
		s.keys("afterwards")
		s.registered("afterwards: registration", reg)
		s.told("afterwards", h)
		_, err := s.inf.AddEventHandler(h)
		s.note("another handler", err)
	}},
	{name: "stop channel", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		s.add(h)
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); s.inf.Run(stop) }()
		s.settle()
		s.told("running", h)
		close(stop)
		<-ended
		s.state("stopped")
	}},
	{name: "run twice", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.run()
		s.inf.RunWithContext(context.Background()) // returns at once
		s.inf.Run(nil)
		s.settle()
		s.told("twice", h)
		s.state("twice")
		s.create("b")
		s.settle()
		s.told("changed", h)
		s.stop()
		s.inf.RunWithContext(context.Background())
		s.create("c")
		s.settle()
		s.state("after the end")
		s.told("after the end", h)
	}},
	{name: "calls once it is started", run: func(s *side) {
		s.run()
		nothing := func(o any) (any, error) { return o, nil }
		s.note("transform", s.inf.SetTransform(nothing))
		s.note("watch error handler", s.inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
		s.note("watch error handler with context",
			s.inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
		s.note("indexers", s.inf.AddIndexers(cache.Indexers{"one": one}))
	}},
	{name: "calls after the end", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		reg, other := s.add(h), s.add(h)
		s.run()
		s.stop()
		_, err := s.inf.AddEventHandler(h)
		s.note("handler", err)
		_, err = s.inf.AddEventHandlerWithResyncPeriod(h, time.Second)
		s.note("handler with a period", err)
		_, err = s.inf.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
		s.note("handler with options", err)
		s.note("remove", s.inf.RemoveEventHandler(reg))
		s.note("remove again", s.inf.RemoveEventHandler(reg))
		s.note("shut down", cache.ShutDownEventHandler(s.inf, other))
		s.note("indexers", s.inf.AddIndexers(cache.Indexers{"one": one}))
		s.note("transform", s.inf.SetTransform(nil))
		s.note("watch error handler", s.inf.SetWatchErrorHandler(nil))
		obj, ok, err := s.inf.GetStore().GetByKey("default/a")
		s.note("get", version(obj), ok, err)
		s.note("write", s.inf.GetStore().Add(cm("b")))
	}, differs: []intended{
		{"write", "<nil>", "boltstore: write to configmaps/v1: its informer has ended and released it, or the file " +
			"is being closed: closed", "The store of an informer that has ended"},
	}},
	{name: "stopped before the sync", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		reg := s.add(h)
		hold := make(chan struct{})
		s.src.hold = hold
		s.run()
		s.state("listing")
		s.registered("listing: registration", reg)
		s.stop()
		close(hold)
		s.settle()
		s.state("stopped")
		s.registered("stopped: registration", reg)
		s.told("stopped", h)
	}},
	{name: "the sync", run: func(s *side) {
		before, while := s.handler("before"), s.handler("while")
		s.create("a")
		reg := s.add(before)
		hold := make(chan struct{})
		s.src.hold = hold
		s.run()
		s.state("listing")
		whileReg := s.add(while)
		s.settle()
		s.registered("listing: before", reg)
		s.registered("listing: while", whileReg)
		close(hold)
		s.settle()
		s.state("synced")
		s.registered("synced: before", reg)
		s.registered("synced: while", whileReg)
		s.told("synced", before, while)
		ctx := context.Background()
		s.note("wait", cache.WaitFor(ctx, "caches", s.inf.HasSyncedChecker(), reg.HasSyncedChecker(),
			s.inf.GetController().HasSyncedChecker()),
			cache.WaitForCacheSync(ctx.Done(), s.inf.HasSynced, reg.HasSynced),
			cache.WaitForNamedCacheSyncWithContext(ctx, s.inf.HasSynced))
	}},
	{name: "nothing to list", run: func(s *side) {
		h := s.handler("h")
		reg := s.add(h)
		s.run()
		s.state("empty")
		s.registered("empty: registration", reg)
		lateReg := s.add(h)
		s.settle()
		s.registered("empty: late registration", lateReg)
		s.told("empty", h)
	}, differs: []intended{
		{"empty: version", "0 0 0", "  ", "Version 0"},
	}},
	{name: "stopped while a call runs", run: func(s *side) {
		h := s.handler("h")
		release := make(chan struct{})
		h.on = func(string) { <-release }
		s.create("a")
		reg := s.add(h)
		s.run()
		s.cancel()
		s.settle()
		s.note("it has returned", isClosed(s.ended))
		s.note("it has stopped", s.inf.IsStopped())
		_, err := s.inf.AddEventHandler(h)
		s.note("another handler", err)
		close(release)
		s.settle()
		s.note("afterwards it has returned", isClosed(s.ended))
		s.registered("afterwards: registration", reg)
		s.told("afterwards", h)
	}},
	{name: "all at once", run: func(s *side) {
		h := s.handler("h")
		s.create("a", "b")
		s.add(h)
		started := make(chan struct{})
		var busy sync.WaitGroup
		faults := make(chan error, 1000)
		for i := range 8 {
			busy.Go(func() {
				<-started
				for n := range 20 {
					reg, err := s.inf.AddEventHandler(s.handler("another"))
					// refused once it runs: only races count
					_ = s.inf.SetTransform(nil)
					_ = s.inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}) // as above
					_ = s.inf.AddIndexers(cache.Indexers{fmt.Sprint(i, n): one})     // as above
					s.inf.HasSynced()
					s.inf.IsStopped()
					s.inf.LastSyncResourceVersion()
					s.inf.GetStore().List()
					faults <- errors.Join(err, s.inf.RemoveEventHandler(reg))
				}
			})
		}
		s.start()
		close(started)
		s.create("c")
		s.delete("a")
		busy.Wait()
		s.settle()
		close(faults)
		var failed error
		for err := range faults {
			failed = errors.Join(failed, err)
		}
		s.note("faults", failed)
		s.keys("afterwards")
		last := map[string]string{} // a and c may come with the list or the watch
		for _, call := range h.take() {
			var typ, obj string
			fmt.Sscan(call, &typ, &obj)
			last[obj] = typ
		}
		s.note("b and c", last["b@2"], last["c@3"])
	}},
	{name: "started and stopped at once", run: func(s *side) {
		s.create("a")
		h := s.handler("h")
		s.start()
		reg, err := s.inf.AddEventHandler(h)
		s.cancel()
		s.stop()
		s.settle()
		s.note("stopped", s.inf.IsStopped(), err)
		s.note("remove", s.inf.RemoveEventHandler(reg))
	}},
}

// one is an index function.
func one(any) ([]string, error) { return []string{"1"}, nil }
