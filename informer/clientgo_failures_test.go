package informer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// failureScenarios are about failures: of the server, transforms and handlers.
var failureScenarios = []scenario{
	{name: "list fails", run: func(s *side) {
		errs := s.watchErrors()
		h := s.handler("h")
		s.create("a")
		reg := s.add(h)
		s.src.fail(errors.New("access denied"), nil)
		s.run()
		after(time.Minute)
		s.note("the handler is called with", errs.take())
		s.state("failing")
		s.registered("failing: registration", reg)
		s.src.fail(nil, nil)
		after(time.Minute)
		s.note("afterwards the handler is called with", errs.take())
		s.state("afterwards")
		s.told("afterwards", h)
	}},
	{name: "watch fails", run: func(s *side) {
		errs := s.watchErrors()
		h := s.handler("h")
		s.create("a")
		reg := s.add(h)
		s.src.fail(nil, errors.New("no watch"))
		s.run()
		after(time.Minute)
		s.state("failing")
		s.registered("failing: registration", reg)
		s.note("failing: h is told", slices.Compact(h.take())) // by each list, after waits that are drawn
		s.note("the handler is called with", errs.take())
		s.src.fail(nil, nil)
		after(time.Minute)
		h.take()
		s.create("b")
		s.settle()
		s.told("afterwards", h)
		s.state("afterwards")
	}, differs: []intended{
		{"failing: h is told", "add a@1 initial, update a@1 a@1", "add a@1 initial", "After an expired watch"},
		{"the handler is called with", "no watch by the reflector of *v1.ConfigMap at \"1\", end <nil>",
			"no watch by the reflector of *v1.ConfigMap at \"\", end <nil>", "The Reflector of a watch error handler"},
	}},
	{name: "watch is refused", run: func(s *side) {
		errs := s.watchErrors()
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.src.fail(nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("not you")))
		s.run()
		h.take()
		s.note("the handler is called with", errs.take())
		s.create("b")
		after(5 * time.Minute)
		s.note("b is told", slices.Contains(h.take(), "add b@2"))
		s.src.fail(nil, nil)
		after(time.Minute)
		s.keys("allowed")
	}, differs: []intended{
		{"b is told", "true", "false", "A list that may be read but not watched"},
		{"the handler is called with",
			"configmaps is forbidden: not you by the reflector of *v1.ConfigMap at \"1\", end <nil>",
			"configmaps is forbidden: not you by the reflector of *v1.ConfigMap at \"\", end <nil>",
			"The Reflector of a watch error handler"},
	}},
	{name: "watch is refused as expired", run: func(s *side) {
		errs := s.watchErrors()
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.run()
		after(5 * time.Second)
		h.take()
		s.src.fail(nil, apierrors.NewResourceExpired("too old"))
		s.src.AddDropWatch(cm("b"))
		s.src.ResetWatch()
		after(time.Minute)
		s.note("the handler is called with", errs.take())
		s.note("b is told", slices.Contains(h.take(), "add b@2"))
		s.src.fail(nil, nil)
		after(time.Minute)
		s.state("afterwards")
	}, differs: []intended{
		{"the handler is called with",
			"too old by the reflector of *v1.ConfigMap at \"1\", end <nil>, too old by the reflector of " +
				"*v1.ConfigMap at \"2\", end <nil>", "", "An expired watch"},
	}},
	{name: "watch error handlers", run: func(s *side) {
		s.note("first", s.inf.SetWatchErrorHandler(func(*cache.Reflector, error) {
			s.t.Error("the first handler is called")
		}))
		errs := s.watchErrors()
		s.src.fail(errors.New("x"), nil)
		s.run()
		s.note("the last one is called with", errs.take())
	}},
	{name: "no watch error handler", run: func(s *side) {
		s.note("none", s.inf.SetWatchErrorHandlerWithContext(nil))
		s.src.fail(errors.New("x"), nil)
		s.run()
		s.src.fail(nil, nil)
		after(time.Minute)
		s.state("afterwards")
	}, differs: []intended{
		{"afterwards: version", "0 0 0", "  ", "Version 0"},
	}},
	{name: "transform", run: func(s *side) {
		var mu sync.Mutex
		var seen []string
		h := s.handler("h")
		s.note("another one", s.inf.SetTransform(func(any) (any, error) { return nil, errors.New("not this one") }))
		s.note("set", s.inf.SetTransform(func(o any) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, version(o))
			o.(*corev1.ConfigMap).Data = nil
			o.(*corev1.ConfigMap).Labels = map[string]string{"seen": "yes"}
			return o, nil
		}))
		s.create("a")
		s.add(h)
		s.run()
		s.create("b")
		s.modify("a")
		s.delete("b")
		s.settle()
		s.told("transformed", h)
		obj, _, _ := s.inf.GetStore().GetByKey("default/a")
		s.note("stored", obj.(*corev1.ConfigMap).Labels, obj.(*corev1.ConfigMap).Data)
		mu.Lock()
		s.note("the transform has seen", seen)
		mu.Unlock()
	}},
	{name: "transform that leaves a map empty", run: func(s *side) {
		s.note("set", s.inf.SetTransform(func(o any) (any, error) {
			o.(*corev1.ConfigMap).Labels = map[string]string{}
			return o, nil
		}))
		s.create("a")
		s.run()
		obj, _, _ := s.inf.GetStore().GetByKey("default/a")
		s.note("the map is nil", obj.(*corev1.ConfigMap).Labels == nil)
	}, differs: []intended{
		{"the map is nil", "false", "true", "Empty maps and slices"},
	}},
	{name: "transform that renames", run: func(s *side) {
		h := s.handler("h")
		s.note("set", s.inf.SetTransform(func(o any) (any, error) {
			o.(*corev1.ConfigMap).Name = strings.ToUpper(o.(*corev1.ConfigMap).Name)
			return o, nil
		}))
		s.create("a")
		s.add(h)
		s.run()
		s.create("b")
		s.modify("a")
		s.settle()
		s.delete("a")
		s.settle()
		s.told("renamed", h)
		s.keys("renamed")
	}},
	{name: "transform that fails on a listed object", o: Options{Transform: refuse("b")}, run: func(s *side) {
		h := s.handler("h")
		s.create("a", "b")
		s.add(h)
		s.run()
		s.keys("failing")
		s.note("failing: synced", s.inf.HasSynced())
		s.told("failing", h)
	}, differs: []intended{
		{"failing: store", "", "a@1", "A transform that fails on a listed object"},
		{"failing: h is told", "", "add a@1 initial", "A transform that fails on a listed object"},
	}},
	{name: "transform that fails once on a watched object", run: func(s *side) {
		var once sync.Once
		s.note("set", s.inf.SetTransform(func(o any) (_ any, err error) {
			if o.(*corev1.ConfigMap).Name == "b" {
				once.Do(func() { err = errors.New("this once") })
			}
			return o, err
		}))
		s.create("a")
		s.run()
		s.create("b", "c")
		after(time.Minute)
		s.keys("a minute later")
	}, differs: []intended{
		{"a minute later: store", "a@1, c@3", "a@1, b@2, c@3",
			"A transform that fails on an object of a streamed list (WatchList) or of the watch"},
	}},
	{name: "transform that panics", run: func(s *side) {
		utilruntime.ReallyCrash = false
		defer func() { utilruntime.ReallyCrash = true }()
		s.note("set", s.inf.SetTransform(func(o any) (any, error) {
			if o.(*corev1.ConfigMap).Name == "b" {
				panic("of the transform")
			}
			return o, nil
		}))
		s.create("a")
		s.run()
		s.create("b", "c")
		after(time.Minute)
		s.keys("a minute later")
	}, differs: []intended{
		{"a minute later: store", "a@1", "a@1, c@3", "A transform that panics"},
	}},
	{name: "objects of another type", run: func(s *side) {
		s.create("a")
		s.src.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret"}})
		s.run()
		s.keys("listed")
		s.note("synced", s.inf.HasSynced())
	}, differs: []intended{
		{"listed: store", "a@1, secret@2", "a@1", "Objects of another type"},
		{"synced", "true", "false", "Objects of another type"},
	}},
	{name: "object of another type on the watch", run: func(s *side) {
		h := s.handler("h")
		s.create("a")
		s.add(h)
		s.run()
		s.src.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret"}})
		s.create("b")
		s.settle()
		s.told("watched", h)
		s.keys("watched")
	}},
	{name: "handler that panics", run: func(s *side) {
		utilruntime.ReallyCrash = false
		defer func() { utilruntime.ReallyCrash = true }()
		h := s.handler("h")
		var mu sync.Mutex
		var times []string
		h.on = func(string) {
			mu.Lock()
			times = append(times, time.Since(s.began).Round(100*time.Millisecond).String())
			mu.Unlock()
			panic("of the handler")
		}
		s.create("a", "b")
		log, logged := newLog()
		reg, err := s.inf.AddEventHandlerWithOptions(h, cache.HandlerOptions{Logger: &log})
		s.note("add", err)
		s.run()
		s.modify("a")
		after(10 * time.Second)
		s.told("afterwards", h)
		mu.Lock()
		s.note("at", times)
		mu.Unlock()
		s.registered("afterwards: registration", reg)
		s.note("panics in the handler's log", strings.Count(logged(), "Observed a panic"),
			strings.Contains(logged(), "of the handler"))
		s.note("remove", s.inf.RemoveEventHandler(reg))
	}, differs: []intended{
		{"afterwards: registration", "false false", "true true", "A handler that panics"},
	}},
}

// refuse is a transform that fails on one object.
func refuse(name string) cache.TransformFunc {
	return func(o any) (any, error) {
		if o.(*corev1.ConfigMap).Name == name {
			return nil, fmt.Errorf("%s is refused", name)
		}
		return o, nil
	}
}

// errorLog keeps each text once.
type errorLog struct {
	mu    sync.Mutex
	texts []string
}

func (l *errorLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	texts := l.texts
	l.texts = nil
	return texts
}

// watchErrors sets a watch error handler.
func (s *side) watchErrors() *errorLog {
	s.t.Helper()
	l := &errorLog{}
	if err := s.inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		text := fmt.Sprintf("%s by the reflector of %s at %q, end %v", err, r.TypeDescription(),
			r.LastSyncResourceVersion(), ctx.Err())
		if !slices.Contains(l.texts, text) {
			l.texts = append(l.texts, text)
		}
	}); err != nil {
		s.t.Fatal(err)
	}
	return l
}

// newLog returns a logger, and its log.
func newLog() (klog.Logger, func() string) {
	var mu sync.Mutex
	var b bytes.Buffer
	write := writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	})
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(write))), func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
