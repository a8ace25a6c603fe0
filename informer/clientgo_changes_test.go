package informer

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// resyncScenarios are about handlers that are told everything again from time to time.
var resyncScenarios = []scenario{
	{name: "resync periods", o: Options{ResyncPeriod: 1500 * time.Millisecond}, run: func(s *side) {
		s.create("a", "b")
		clocks := []*resyncClock{
			s.clock("default", nil), s.clock("never", new(time.Duration(0))),
			s.clock("short", new(100*time.Millisecond)),
			s.clock("long", new(3500*time.Millisecond)), s.clock("negative", new(-time.Second)),
		}
		s.run()
		after(2200 * time.Millisecond)
		clocks = append(clocks, s.clock("late", new(4*time.Second)),
			s.clock("late and short", new(10*time.Millisecond)), s.clock("late default", nil))
		after(20 * time.Second)
		for _, c := range clocks {
			s.note(c.name+" is told again after", c.take())
		}
	}},
	{name: "resync where the informer has no period", run: func(s *side) {
		s.create("a")
		c := s.clock("h", new(2*time.Second))
		s.run()
		late := s.clock("late", new(2*time.Second))
		after(10 * time.Second)
		s.note("told again after", c.take(), late.take())
	}},
	{name: "resync with a shorter period before the start", o: Options{ResyncPeriod: time.Hour}, run: func(s *side) {
		s.create("a")
		short, hour := s.clock("short", new(5*time.Second)), s.clock("hour", nil)
		s.run()
		late := s.clock("late", new(time.Second)) // as often as the informer's by now
		after(22 * time.Second)
		s.note("short", short.take())
		s.note("late", late.take())
		after(time.Hour)
		s.note("hour", hour.take())
	}},
	{name: "resyncs while a handler is called", o: Options{ResyncPeriod: 2 * time.Second}, run: func(s *side) {
		h := s.handler("h")
		release := make(chan struct{})
		h.on = func(string) { <-release }
		s.create("a")
		s.add(h)
		s.run()
		after(7 * time.Second)
		close(release)
		s.settle()
		s.told("afterwards", h)
	}, differs: []intended{{"afterwards: h is told",
		"add a@1 initial, update a@1 a@1, update a@1 a@1, update a@1 a@1", "add a@1 initial, update a@1 a@1",
		"Resyncs that are due while a handler is behind"}}},
	{name: "what a resync tells", o: Options{ResyncPeriod: 2 * time.Second}, run: func(s *side) {
		var same []string
		var mu sync.Mutex
		s.create("a", "b")
		s.add(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, obj any) {
			mu.Lock()
			defer mu.Unlock()
			same = append(same, fmt.Sprint(version(obj), " same object ", old == obj))
			slices.Sort(same)
		}})
		s.run()
		s.delete("b")
		after(3 * time.Second)
		mu.Lock()
		s.note("told", same)
		mu.Unlock()
	}},
	{name: "resync of a removed handler", o: Options{ResyncPeriod: time.Second}, run: func(s *side) {
		h, stays := s.handler("h"), s.handler("stays")
		s.create("a")
		reg := s.add(h)
		s.add(stays)
		s.run()
		s.note("remove", s.inf.RemoveEventHandler(reg))
		after(time.Second)
		s.told("a second later", h, stays)
	}},
}

// resyncClock notes when a handler is told its first object again.
type resyncClock struct {
	*tableHandler
	mu    sync.Mutex
	times []string
}

func (s *side) clock(name string, period *time.Duration) *resyncClock {
	c := &resyncClock{tableHandler: s.handler(name)}
	c.on = func(call string) {
		if call == "update a@1 a@1" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.times = append(c.times, time.Since(s.began).Round(100*time.Millisecond).String())
		}
	}
	if _, err := s.inf.AddEventHandlerWithOptions(c, cache.HandlerOptions{ResyncPeriod: period}); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (c *resyncClock) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times
}

// changeScenarios are about the changes on the server that handlers are told.
var changeScenarios = []scenario{
	{name: "changes", run: func(s *side) {
		h := s.handler("h")
		s.add(h)
		s.run()
		for i := range 20 {
			name := fmt.Sprint("o", i%3)
			s.create(name)
			s.modify(name)
			s.modify(name)
			s.delete(name)
		}
		s.create("o1")
		s.settle()
		s.told("all", h)
		s.state("afterwards")
	}},
	{name: "bookmark", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.run()
		s.src.AddDropWatch(cm("b"))
		s.src.DeleteDropWatch(cm("b"))
		s.event(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "3"}})
		s.told("bookmark", h)
		s.state("bookmark")
		after(11 * time.Minute)
		s.state("bookmark, later")
	}, differs: []intended{
		{"bookmark: version", "3 3 3", "3 3 1", "`LastStoreSyncResourceVersion`"},
	}},
	{name: "watch that ends", run: func(s *side) {
		h := s.handler("h")
		s.create("a", "b", "c")
		s.add(h)
		s.run()
		after(5 * time.Second)
		s.src.ResetWatch()
		after(time.Minute)
		s.create("d")
		s.settle()
		s.told("afterwards", h)
		s.state("afterwards")
	}},
	{name: "expired watch", run: func(s *side) {
		h := s.handler("h")
		s.create("changed", "deleted", "same")
		s.add(h)
		s.run()
		after(5 * time.Second)
		h.take()
		s.src.ModifyDropWatch(cm("changed", "x"))
		s.src.DeleteDropWatch(cm("deleted"))
		s.src.AddDropWatch(cm("new"))
		s.src.ResetWatch()
		after(time.Minute)
		told := h.take()
		slices.Sort(told)
		s.note("told", told)
		s.state("afterwards")
		s.create("d")
		s.settle()
		s.told("and then", h)
	}, differs: []intended{
		{"told", "add new@6, delete unknown default/deleted deleted@2, update changed@1 changed@4, update " +
			"same@3 same@3",
			"add new@6, delete unknown default/deleted deleted@2, update changed@1 changed@4",
			"After an expired watch"},
	}},
	{name: "error event that says expired", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.run()
		after(5 * time.Second)
		h.take()
		s.src.AddDropWatch(cm("b"))
		s.event(watch.Error, &metav1.Status{Status: metav1.StatusFailure, Code: 410,
			Reason: metav1.StatusReasonExpired, Message: "too old"})
		after(time.Minute)
		s.note("add b@2 is told", slices.Contains(h.take(), "add b@2"))
		s.state("afterwards")
	}},
	{name: "unchanged version", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.run()
		h.take()
		s.event(watch.Modified, at("a", "1"))
		s.told("unchanged object", h)
		s.event(watch.Modified, at("a", "1", "changed"))
		s.told("changed object", h)
		s.keys("afterwards")
	}, differs: []intended{
		{"unchanged object: h is told", "update a@1 a@1", "", "A changed object under an unchanged version"},
	}},
	{name: "older version", run: func(s *side) {
		h := s.handler("h")
		s.create("a", "b")
		s.modify("a")
		s.add(h)
		s.run()
		h.take()
		s.event(watch.Modified, at("a", "2", "old"))
		s.told("older", h)
		s.keys("older")
		s.modify("a")
		s.settle()
		s.note("newer: the last call", last(h.take()))
	}, differs: []intended{
		{"older: h is told", "update a@3 a@2", "", "A change older than the stored object"},
		{"older: store", "a@2, b@2", "a@3, b@2", "A change older than the stored object"},
		{"newer: the last call", "update a@2 a@4", "update a@3 a@4", "A change older than the stored object"},
	}},
	{name: "another UID", run: func(s *side) {
		h := s.handler("h")
		first, second := cm("a"), cm("a")
		first.UID, second.UID = "1", "2"
		s.src.Add(first)
		s.add(h)
		s.run()
		h.take()
		s.src.Modify(second)
		s.settle()
		s.told("modified", h)
		s.src.Delete(first)
		s.settle()
		s.told("deleted under the first UID", h)
	}, differs: []intended{
		{"modified: h is told", "update a@1 a@2", "delete unknown default/a a@1, add a@2",
			"Another UID under the same key"},
		{"deleted under the first UID: h is told", "delete a@3", "delete unknown default/a a@2",
			"Another UID under the same key"},
	}},
	{name: "delete of what is not there", run: func(s *side) {
		h := s.handler("h")
		s.create("a", "b")
		s.add(h)
		s.run()
		h.take()
		s.event(watch.Deleted, at("new", "9"))
		s.told("newer than all", h)
		s.event(watch.Deleted, at("old", "4"))
		s.told("older", h)
		s.state("afterwards")
	}, differs: []intended{
		{"older: h is told", "delete old@4", "", "A DELETED of an object that the file does not hold"},
	}},
	{name: "add of what is there", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.run()
		h.take()
		s.event(watch.Added, at("a", "5", "changed"))
		s.told("there", h)
		s.event(watch.Modified, at("b", "6"))
		s.told("not there", h)
		s.state("afterwards")
	}},
}
