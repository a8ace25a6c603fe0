package informer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestGoneBeforeItsPage: of an object of a new file's first list that is deleted
// before the replay comes to it a handler without an earlier life is told
// nothing; one that has been told of it in an earlier life is.
func TestGoneBeforeItsPage(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprint("durable ", durable), func(t *testing.T) {
			w := newWorld(t)
			for i := range pageObjects + 2 {
				w.create(fmt.Sprintf("o%04d", i))
			}
			r := newLedger(t)
			var shown, last string // the latter is of a page that it has not come to
			live := func(during func(l *life)) (log []string) {
				l := w.live(Options{})
				entered, release := make(chan struct{}), make(chan struct{})
				first := sync.OnceFunc(func() { close(entered); <-release })
				var err error
				if durable {
					r.answers(func(Event) error { first(); return nil })
					_, err = l.inf.AddDurableHandler("test", r, DurableOptions{MaxPending: 2})
				} else {
					_, err = l.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
						AddFunc:    func(obj any) { first(); r.OnAdd(obj, true) },
						DeleteFunc: r.OnDelete,
					})
				}
				if err != nil {
					t.Fatal(err)
				}
				l.run().synced()
				if during != nil {
					<-entered
					during(l)
				}
				close(release)
				eventually(t, "told", func() bool {
					l.inf.mu.Lock()
					defer l.inf.mu.Unlock()
					for x := range l.inf.listeners {
						if !x.HasSynced() || x.cursor.Load() < l.inf.store.State().Seq {
							return false
						}
					}
					for d := range l.inf.durables {
						if !d.HasSynced() || !l.inf.idle(d) {
							return false
						}
					}
					return true
				})
				l.end()
				return r.take()
			}
			log := live(func(l *life) {
				first, err := l.inf.store.Page(nil, pageObjects)
				if err != nil {
					t.Fatal(err)
				}
				second, err := l.inf.store.Page(first.Next, pageObjects)
				if err != nil || len(second.Keys) != 2 {
					t.Fatal(second.Keys, err)
				}
				shown, last = strings.TrimPrefix(first.Keys[0], "default/"), strings.TrimPrefix(second.Keys[0], "default/")
				w.delete(last)
				l.equal()
			})
			if slices.Contains(log, "delete "+last) || len(log) != pageObjects+1 {
				t.Errorf("%d events, among them %q", len(log), log[len(log)-1])
			}
			w.delete(shown)
			if log := live(nil); !slices.Contains(log, "delete "+shown) {
				t.Errorf("the delete is not told: %q", log)
			}
		})
	}
}
