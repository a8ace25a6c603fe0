package informer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func (p *user) object(key string) *corev1.ConfigMap {
	ns, name, _ := strings.Cut(key, "/")
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: p.objects[key]},
		Data: map[string]string{"n": fmt.Sprint(p.n, p.rnd.IntN(1000))}}
}

func (p *user) key() string {
	return fmt.Sprint([]string{"default/", "other/"}[p.rnd.IntN(2)], string(rune('a'+p.rnd.IntN(4))))
}

// change changes an object. lost: no watch is told.
func (p *user) change(lost bool) {
	key := p.key()
	if p.touched[key] {
		return
	}
	if p.touched != nil {
		p.touched[key] = true // changes between two lists are not seen
	}
	_, there := p.objects[key]
	told := map[bool]float64{true: 0, false: 1}[lost] // how likely a watch is told
	switch {
	case !there:
		p.uids++
		p.objects[key] = types.UID(fmt.Sprint(p.uids))
		p.src.Change(watch.Event{Type: watch.Added, Object: p.object(key)}, told)
	case p.rnd.IntN(2) == 0:
		p.src.Change(watch.Event{Type: watch.Modified, Object: p.object(key)}, told)
	default:
		p.src.Change(watch.Event{Type: watch.Deleted, Object: p.object(key)}, told)
		delete(p.objects, key)
	}
}

// step is the program's next step.
func (p *user) step() {
	if p.over {
		p.afterwards()
		return
	}
	what := fmt.Sprint(p.n, " ")
	switch k := p.rnd.IntN(100); {
	case k < 30:
		for range p.rnd.IntN(4) + 1 {
			p.change(false)
		}
		p.settle()
		p.look(what + "changes")
	case k < 45:
		p.addHandler(what)
	case k < 52 && len(p.handlers) > 0:
		h := p.handlers[p.rnd.IntN(len(p.handlers))]
		p.note(what+"remove "+h.name, p.inf.RemoveEventHandler(h.reg))
		h.removed = true
		if p.rnd.IntN(2) == 0 && h.release == nil {
			p.note(what+"shut down "+h.name, cache.ShutDownEventHandler(p.inf, h.reg))
		}
		p.settle()
		p.look(what + "removed")
	case k < 58 && len(p.handlers) > 0:
		h := p.handlers[p.rnd.IntN(len(p.handlers))]
		h.free()
		p.settle()
		p.look(what + "freed " + h.name)
	case k < 66:
		p.index(what)
	case k < 72:
		after(time.Duration(p.rnd.IntN(4000)) * time.Millisecond)
		p.look(what + "later")
	case k < 78 && p.running && !p.resyncs:
		after(5 * time.Second)
		p.look(what + "before the loss")
		p.touched = map[string]bool{}
		for range p.rnd.IntN(4) {
			p.change(true)
		}
		p.touched = nil
		p.src.ResetWatch()
		after(time.Minute)
		p.look(what + "after the loss")
	case k < 82 && p.running:
		p.src.AddDropWatch(cm("ghost"))
		p.src.DeleteDropWatch(cm("ghost"))
		p.src.Broadcaster.Action(watch.Bookmark,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: p.lastVersion()}})
		p.settle()
		p.look(what + "bookmark")
	case k < 86 && p.running && !p.resyncs:
		after(5 * time.Second)
		var list, watchErr error
		if p.rnd.IntN(2) == 0 {
			list = errors.New("no list")
		}
		if p.rnd.IntN(2) == 0 {
			watchErr = errors.New("no watch")
		}
		p.src.fail(list, watchErr)
		p.src.ResetWatch()
		p.touched = map[string]bool{}
		for range p.rnd.IntN(3) {
			p.change(false)
		}
		p.touched = nil
		after(time.Duration(p.rnd.IntN(5000)) * time.Millisecond)
		p.src.fail(nil, nil)
		after(2 * time.Minute)
		p.look(what + "after the failures")
	case k < 90:
		p.calls(what)
	case k < 97 && !p.running && p.n > 5:
		p.running = true
		p.side.run()
		p.look(what + "run")
	case k < 99 && p.n > 40:
		if p.running {
			free := p.rnd.IntN(2) == 0
			for _, h := range p.handlers {
				if free || h.release != nil {
					h.free()
				}
			}
			p.settle()
			p.stop()
		}
		p.over = p.running
	}
}

func (p *user) lastVersion() string {
	l, err := p.src.FakeControllerSource.List(metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return l.(metav1.ListInterface).GetResourceVersion()
}

func (p *user) addHandler(what string) {
	h := &userHandler{tableHandler: p.handler(fmt.Sprint("h", len(p.handlers)))}
	if p.rnd.IntN(5) == 0 && !p.resyncs {
		release := make(chan struct{})
		h.release = release
		h.on = func(string) { <-release }
	} else if p.rnd.IntN(5) == 0 {
		self := p.rnd.IntN(2) == 0
		h.on = func(call string) {
			if !strings.Contains(call, "add default/a") || strings.Contains(call, "initial") || h.removed {
				return
			}
			if self {
				h.removed = true
				h.say(fmt.Sprint("removes itself ", p.inf.RemoveEventHandler(h.reg)))
				return
			}
			_, err := p.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
			h.say(fmt.Sprint("adds another ", err))
		}
	}
	var o cache.HandlerOptions
	switch p.rnd.IntN(4) {
	case 0:
		o.ResyncPeriod = new(time.Duration(p.rnd.IntN(6000)-500) * time.Millisecond)
	case 1:
		o.ResyncPeriod = new(time.Duration(0))
	}
	started := make(chan struct{})
	on := h.on
	h.on = func(call string) {
		<-started
		if on != nil {
			on(call)
		}
	}
	var err error
	h.reg, err = p.inf.AddEventHandlerWithOptions(h, o)
	close(started)
	if o.ResyncPeriod == nil {
		p.note(what+"add "+h.name, err)
	} else {
		p.note(what+"add "+h.name, err, *o.ResyncPeriod)
	}
	p.handlers = append(p.handlers, h)
	p.settle()
	p.look(what + "added")
}

func (p *user) index(what string) {
	if p.rnd.IntN(2) == 0 {
		name := fmt.Sprint("i", p.indices)
		if p.rnd.IntN(4) > 0 {
			p.indices++
		}
		kind := p.rnd.IntN(4)
		p.note(what+"AddIndexers "+name, p.inf.AddIndexers(cache.Indexers{name: func(o any) ([]string, error) {
			c := o.(*corev1.ConfigMap)
			switch kind {
			case 0:
				return []string{c.Namespace}, nil
			case 1:
				return []string{c.Name, c.Namespace, c.Name}, nil
			case 2:
				if c.Name == "a" {
					return nil, nil
				}
				return []string{"", strings.Repeat(c.Name, 600), "\x00\xff"}, nil
			}
			return []string{c.Data["n"]}, nil
		}}))
	}
	for i := range p.indices + 1 {
		name := fmt.Sprint("i", i)
		values := p.inf.GetIndexer().ListIndexFuncValues(name)
		slices.Sort(values)
		p.note(what+"values "+name, len(values), values)
		for _, v := range append(values, "default", "none", "") {
			keys, err := p.inf.GetIndexer().IndexKeys(name, v)
			slices.Sort(keys)
			objs, err2 := p.inf.GetIndexer().ByIndex(name, v)
			p.note(what+"keys", keys, keys == nil, err, len(objs), objs == nil, err2)
		}
		objs, err := p.inf.GetIndexer().Index(name,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}})
		p.note(what+"index", len(objs), objs == nil, err)
	}
}

func (p *user) calls(what string) {
	p.note(what+"calls", p.inf.IsStopped(), p.inf.GetController().HasSynced(), len(p.inf.GetIndexer().GetIndexers()))
	if p.running {
		p.note(what+"transform", p.inf.SetTransform(nil))
		p.note(what+"errors", p.inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
		p.note(what+"remove nothing", p.inf.RemoveEventHandler(nil) != nil)
	}
	obj, ok, err := p.inf.GetStore().Get(cache.ExplicitKey("default/a"))
	p.note(what+"get", obj != nil, ok, err)
	obj, ok, err = p.inf.GetStore().Get(cache.DeletedFinalStateUnknown{Key: "default/b"})
	p.note(what+"get", obj != nil, ok, err)
	_, _, err = p.inf.GetStore().Get("no object")
	p.note(what+"get of no object", err)
	keys := p.inf.GetStore().ListKeys()
	slices.Sort(keys)
	p.note(what+"list keys", keys)
}

func (p *user) afterwards() {
	what := fmt.Sprint(p.n, " afterwards ")
	switch p.rnd.IntN(5) {
	case 0:
		_, err := p.inf.AddEventHandler(p.handler("late"))
		p.note(what+"add", err)
	case 1:
		p.index(what)
	case 2:
		p.calls(what)
	case 3:
		if len(p.handlers) > 0 {
			h := p.handlers[p.rnd.IntN(len(p.handlers))]
			p.note(what+"remove", p.inf.RemoveEventHandler(h.reg), cache.ShutDownEventHandler(p.inf, h.reg))
		}
	case 4:
		p.change(false)
		p.settle()
		p.look(what + "change")
	}
}
