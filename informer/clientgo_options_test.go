package informer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// optionScenarios are about indices, typed wrappers and names.
var optionScenarios = []scenario{
	{name: "indices", o: Options{Indexers: cache.Indexers{"made": byName}}, run: func(s *side) {
		indexers := func(when string) {
			s.note(when+": indexers", slices.Sorted(maps.Keys(s.inf.GetIndexer().GetIndexers())))
		}
		s.create("a", "b")
		s.note("before the start", s.inf.AddIndexers(cache.Indexers{"before": byName}))
		s.note("none", s.inf.AddIndexers(nil), s.inf.AddIndexers(cache.Indexers{}))
		s.note("conflict", s.inf.AddIndexers(cache.Indexers{"before": byName}))
		s.note("conflict with one that was made", s.inf.AddIndexers(cache.Indexers{"made": byName, "new": byName}))
		indexers("before the start")
		s.run()
		s.note("after the start", s.inf.AddIndexers(cache.Indexers{"after": byName}))
		s.note("conflict after the start", s.inf.AddIndexers(cache.Indexers{"after": byName}))
		s.note("by the store", s.inf.GetIndexer().AddIndexers(cache.Indexers{"store": byName}))
		indexers("after the start")
		s.create("c")
		s.delete("b")
		s.settle()
		for _, name := range []string{"made", "before", "after", "store", "new"} {
			keys, err := s.inf.GetIndexer().IndexKeys(name, "c")
			s.note(name, keys, err)
			objs, err := s.inf.GetIndexer().ByIndex(name, "a")
			s.note(name+" objects", len(objs), err)
			values := s.inf.GetIndexer().ListIndexFuncValues(name)
			slices.Sort(values)
			s.note(name+" values", values)
		}
		s.stop()
		s.note("after the end", s.inf.AddIndexers(cache.Indexers{"late": byName}))
		s.note("none after the end", s.inf.AddIndexers(nil))
		indexers("after the end")
	}},
	{name: "listers", o: Options{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}},
		run: func(s *side) {
			lister := corelisters.NewConfigMapLister(s.inf.GetIndexer())
			s.create("a", "b")
			s.run()
			all, err := lister.List(labels.Everything())
			s.note("list", len(all), err)
			some, err := lister.ConfigMaps("default").List(labels.Everything())
			s.note("list of a namespace", len(some), err)
			none, err := lister.ConfigMaps("other").List(labels.Everything())
			s.note("list of another namespace", len(none), err)
			one, err := lister.ConfigMaps("default").Get("a")
			s.note("get", version(one), err)
			_, err = lister.ConfigMaps("default").Get("c")
			s.note("get of none", err)
		}},
	{name: "typed", run: func(s *side) {
		typed := cache.NewTypedSharedIndexInformer[*corev1.ConfigMap](s.inf)
		h, late := s.handler("h"), s.handler("late")
		deleted := func(h *tableHandler, o cache.DeletedObject[*corev1.ConfigMap]) {
			h.call(fmt.Sprint("delete ", o.GetKey(), " ", version(o.OptionalObj), " unknown ",
				o.FinalStateUnknown != nil))
		}
		reg, err := typed.AddTypedEventHandler(cache.TypedResourceEventHandlerDetailedFuncs[*corev1.ConfigMap]{
			AddFunc:    func(o *corev1.ConfigMap, initial bool) { h.OnAdd(o, initial) },
			UpdateFunc: func(old, o *corev1.ConfigMap) { h.OnUpdate(old, o) },
			DeleteFunc: func(o cache.DeletedObject[*corev1.ConfigMap]) { deleted(h, o) },
		})
		s.note("add", err)
		_, err = typed.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.ConfigMap]{},
			cache.HandlerOptions{}, cache.HandlerOptions{})
		s.note("add with two options", err)
		byLabel := cache.TypedIndexers[*corev1.ConfigMap]{"data": func(o *corev1.ConfigMap) ([]string, error) {
			return []string{o.Name}, nil
		}}
		s.note("indexers", typed.AddTypedIndexers(byLabel))
		s.note("indexers again", typed.AddTypedIndexers(byLabel))
		s.create("a", "b")
		s.run()
		s.registered("registration", reg)
		_, err = typed.AddTypedEventHandler(cache.TypedFilteringResourceEventHandler[*corev1.ConfigMap]{
			FilterFunc: func(o *corev1.ConfigMap) bool { return o.Name == "b" },
			Handler: cache.TypedResourceEventHandlerFuncs[*corev1.ConfigMap]{
				AddFunc:    func(o *corev1.ConfigMap) { late.OnAdd(o, false) },
				DeleteFunc: func(o cache.DeletedObject[*corev1.ConfigMap]) { deleted(late, o) },
			},
		}, cache.HandlerOptions{ResyncPeriod: new(time.Hour)})
		s.note("add late", err)
		s.settle()
		s.modify("a")
		s.delete("b")
		s.settle()
		s.src.DeleteDropWatch(cm("a"))
		s.src.ResetWatch()
		after(time.Minute)
		s.told("all", h, late)
		indexer := typed.GetTypedIndexer()
		s.create("c")
		s.settle()
		objs, err := indexer.ByTypedIndex("data", "c")
		s.note("by index", len(objs), err)
		objs, err = indexer.TypedIndex("data", cm("c"))
		s.note("index", len(objs), err)
		_, err = indexer.ByTypedIndex("none", "c")
		s.note("by no index", err)
		s.note("indexers of the indexer",
			indexer.AddTypedIndexers(cache.TypedIndexers[*corev1.ConfigMap]{"more": byLabel["data"]}))
	}},
	{name: "names", run: func(s *side) {
		const of = " of configmaps/v1" // ours names the source, too
		named := func(what string, h cache.ResourceEventHandler) {
			name := s.add(h).HasSyncedChecker().Name()
			s.note(what, strings.Replace(name, of, "", 1))
		}
		informer := s.inf.HasSyncedChecker().Name()
		s.note("informer", strings.Replace(informer, of, "", 1),
			s.inf.GetController().HasSyncedChecker().Name() == informer)
		named("handler", s.handler("h"))
		named("functions", cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}})
		named("pointer to functions", &cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {}})
		named("detailed functions", cache.ResourceEventHandlerDetailedFuncs{UpdateFunc: func(any, any) {}})
		named("no functions", cache.ResourceEventHandlerFuncs{})
	}},
	{name: "handler options", o: Options{ResyncPeriod: time.Minute}, run: func(s *side) {
		log, logged := newLog()
		warnings := func(what string, period time.Duration) {
			_, err := s.inf.AddEventHandlerWithOptions(s.handler("h"),
				cache.HandlerOptions{Logger: &log, ResyncPeriod: &period})
			s.note(what, err, strings.Count(logged(), "Warning: "))
		}
		warnings("an hour", time.Hour)
		warnings("never", 0)
		warnings("too short", time.Millisecond)
		s.run()
		warnings("an hour, late", time.Hour)
		warnings("too short, late", time.Millisecond)
	}},
}

func byName(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Name}, nil }
