package informer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

type foreignHandle struct {
	cache.ResourceEventHandlerRegistration
}

// TestHandlesBesideClientGo: what RemoveEventHandler answers to handles of all
// kinds is what client-go's informer answers.
func TestHandlesBesideClientGo(t *testing.T) {
	w := newWorld(t)
	other := newWorld(t)
	ours := func(w *world) cache.SharedIndexInformer { return w.live(Options{}).run().synced().inf }
	stock := func(w *world) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(listWatch(w.config()), &corev1.ConfigMap{}, 0, cache.Indexers{})
	}
	answers := func(mine, another cache.SharedIndexInformer) map[string]bool {
		a := map[string]bool{}
		handle := func(inf cache.SharedIndexInformer) cache.ResourceEventHandlerRegistration {
			reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
			if err != nil {
				t.Fatal(err)
			}
			return reg
		}
		a["before there is a handler"] = mine.RemoveEventHandler(handle(another)) == nil
		own := handle(mine)
		a["another informer's"] = mine.RemoveEventHandler(handle(another)) == nil
		a["its own"] = mine.RemoveEventHandler(own) == nil
		a["its own, twice"] = mine.RemoveEventHandler(own) == nil
		a["nil"] = mine.RemoveEventHandler(nil) == nil
		a["of another type"] = mine.RemoveEventHandler(foreignHandle{}) == nil
		return a
	}
	got, want := answers(ours(w), ours(other)), answers(stock(w), stock(other))
	for name, ok := range want {
		if got[name] != ok {
			t.Errorf("%s: no error: %v, client-go %v", name, got[name], ok)
		}
	}
}
