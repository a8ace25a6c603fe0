package informer

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// handlerScenarios are about handlers that are added, and their actions inside a call.
var handlerScenarios = []scenario{
	{name: "late handler", run: func(s *side) {
		h := s.handler("late")
		release := make(chan struct{})
		h.on = func(string) { <-release }
		s.create("a", "b")
		s.run()
		reg := s.add(h)
		s.settle()
		s.registered("in its first call", reg)
		s.create("c")
		s.settle()
		s.registered("a change later", reg)
		close(release)
		s.settle()
		s.registered("afterwards", reg)
		s.note("afterwards: the last call", last(h.take()))
	}},
	{name: "slow handler and quick handler", run: func(s *side) {
		slow, quick := s.handler("slow"), s.handler("quick")
		release := make(chan struct{})
		slow.on = func(string) { <-release }
		s.create("a")
		slowReg, quickReg := s.add(slow), s.add(quick)
		s.run()
		s.create("b")
		s.modify("a")
		s.settle()
		s.told("meanwhile", quick)
		s.registered("meanwhile: slow", slowReg)
		s.registered("meanwhile: quick", quickReg)
		s.state("meanwhile")
		close(release)
		s.settle()
		s.told("afterwards", slow, quick)
		s.registered("afterwards: slow", slowReg)
	}},
	{name: "handler twice", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		first, second := s.add(h), s.add(h)
		s.note("one registration", first == second)
		s.run()
		s.told("both", h)
		s.note("remove", s.inf.RemoveEventHandler(first))
		s.create("b")
		s.settle()
		s.told("one", h)
		s.note("remove", s.inf.RemoveEventHandler(second))
		s.create("c")
		s.settle()
		s.told("none", h)
	}},
	{name: "calls inside a handler", run: func(s *side) {
		h, added := s.handler("h"), s.handler("added")
		s.create("a", "b")
		h.on = func(call string) {
			if call != "add c@3" {
				return
			}
			s.keys("inside")
			s.inf.LastSyncResourceVersion() // client-go moves it before the call or after
			s.note("inside: synced", s.inf.HasSynced(), s.inf.IsStopped())
			s.note("inside: indexers", s.inf.AddIndexers(cache.Indexers{"one": one}))
			_, err := s.inf.AddEventHandler(added)
			s.note("inside: add a handler", err)
		}
		s.add(h)
		s.run()
		s.create("c")
		s.settle()
		s.create("d")
		s.settle()
		s.told("afterwards", h, added)
	}},
	{name: "handlers of functions", run: func(s *side) {
		calls := s.handler("functions")
		s.create("a", "b")
		s.add(cache.ResourceEventHandlerFuncs{})
		s.add(&cache.ResourceEventHandlerDetailedFuncs{AddFunc: calls.OnAdd})
		s.add(cache.FilteringResourceEventHandler{
			FilterFunc: func(o any) bool {
				k, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
				return k == "default/b"
			},
			Handler: cache.ResourceEventHandlerFuncs{UpdateFunc: calls.OnUpdate, DeleteFunc: calls.OnDelete},
		})
		s.run()
		s.modify("a")
		s.modify("b")
		s.delete("a")
		s.delete("b")
		s.settle()
		s.told("all", calls)
	}},
	{name: "objects are the same", run: func(s *side) {
		var mu sync.Mutex
		seen := map[string]map[any]bool{}
		note := func(what string, obj any) {
			mu.Lock()
			defer mu.Unlock()
			if seen[what] == nil {
				seen[what] = map[any]bool{}
			}
			seen[what][obj] = true
		}
		h := cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, obj any) { note("new", obj) },
			DeleteFunc: func(obj any) { note("deleted", obj) },
		}
		s.create("a")
		s.add(h)
		s.add(h)
		s.run()
		s.modify("a")
		s.settle()
		s.delete("a")
		s.settle()
		s.note("two handlers are told of one new object", len(seen["new"]))
		s.note("and of one that is deleted", len(seen["deleted"]))
	}},
}

func last(calls []string) string {
	if len(calls) == 0 {
		return "none"
	}
	return calls[len(calls)-1]
}

// removalScenarios are about handlers that are removed.
var removalScenarios = []scenario{
	{name: "removed before the start", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		reg := s.add(h)
		s.note("remove", s.inf.RemoveEventHandler(reg))
		s.note("remove again", s.inf.RemoveEventHandler(reg))
		s.note("shut down", cache.ShutDownEventHandler(s.inf, reg))
		s.run()
		s.told("running", h)
		s.registered("running: registration", reg)
	}},
	{name: "removed", run: func(s *side) {
		h, stays := s.handler("h"), s.handler("stays")
		s.create("a")
		reg := s.add(h)
		s.add(stays)
		s.run()
		s.told("running", h, stays)
		s.note("remove", s.inf.RemoveEventHandler(reg))
		s.create("b")
		s.settle()
		s.told("removed", h, stays)
		s.registered("removed: registration", reg)
		s.note("remove again", s.inf.RemoveEventHandler(reg))
		s.add(h)
		s.settle()
		s.told("added again", h, stays)
	}},
	{name: "removed before the sync", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		reg := s.add(h)
		hold := make(chan struct{})
		s.src.hold = hold
		s.run()
		s.note("remove", s.inf.RemoveEventHandler(reg))
		s.settle()
		close(hold)
		s.settle()
		s.told("synced", h)
		s.registered("synced: registration", reg)
	}},
	{name: "removed in its call", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		var reg cache.ResourceEventHandlerRegistration
		h.on = func(call string) {
			if call == "add b@2" {
				s.note("remove inside", s.inf.RemoveEventHandler(reg))
			}
		}
		reg = s.add(h)
		s.run()
		s.create("b")
		s.settle()
		s.create("c")
		s.settle()
		s.told("afterwards", h)
		s.note("shut down", cache.ShutDownEventHandler(s.inf, reg))
	}},
	{name: "another is removed in a call", run: func(s *side) {
		h, other := s.handler("h"), s.handler("other")
		s.create("a")
		otherReg := s.add(other)
		h.on = func(call string) {
			if call == "add b@2" {
				s.note("remove inside", cache.ShutDownEventHandler(s.inf, otherReg))
			}
		}
		s.add(h)
		s.run()
		s.told("running", other)
		s.create("b")
		s.settle()
		other.take() // whether it was told of b is a matter of time
		s.create("c")
		s.settle()
		s.told("afterwards", h, other)
	}},
	{name: "shut down while a call runs", run: func(s *side) {
		h := s.handler("h")
		release := make(chan struct{})
		h.on = func(call string) {
			if call == "add b@2" {
				<-release
			}
		}
		s.create("a")
		reg := s.add(h)
		s.run()
		s.create("b")
		s.settle()
		down := make(chan struct{})
		go func() { defer close(down); s.note("shut down", cache.ShutDownEventHandler(s.inf, reg)) }()
		s.settle()
		s.note("it waits for the call", !isClosed(down))
		close(release)
		<-down
		s.create("c")
		s.settle()
		s.told("afterwards", h)
		s.note("shut down again", cache.ShutDownEventHandler(s.inf, reg))
	}},
	{name: "removed while a call runs", run: func(s *side) {
		h := s.handler("h")
		release := make(chan struct{})
		h.on = func(string) { <-release }
		s.create("a")
		reg := s.add(h)
		s.run()
		s.note("remove", s.inf.RemoveEventHandler(reg)) // does not wait
		s.settle()
		close(release)
		s.settle()
		s.registered("afterwards: registration", reg)
		s.told("afterwards", h)
	}},
	// The answers of RemoveEventHandler to handles of all kinds.
	{name: "handles", run: func(s *side) {
		other := s.another()
		handle := func(inf cache.SharedIndexInformer) cache.ResourceEventHandlerRegistration {
			reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
			if err != nil {
				s.t.Fatal(err)
			}
			return reg
		}
		s.note("another informer's, before there is a handler", s.inf.RemoveEventHandler(handle(other)))
		own := handle(s.inf)
		s.note("another informer's", s.inf.RemoveEventHandler(handle(other)))
		s.note("its own", s.inf.RemoveEventHandler(own))
		s.note("its own, twice", s.inf.RemoveEventHandler(own))
		s.note("nil", s.inf.RemoveEventHandler(nil) != nil)
		s.note("of another type", s.inf.RemoveEventHandler(foreignHandle{}) != nil)
		s.note("shut down of another type", cache.ShutDownEventHandler(s.inf, foreignHandle{}) != nil)
	}},
}

type foreignHandle struct {
	cache.ResourceEventHandlerRegistration
}
