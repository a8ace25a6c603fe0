package reflector

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestPagesOfLargeObjects: however large objects are, and wherever they come in a list,
// no page takes much more memory than others.
func TestPagesOfLargeObjects(t *testing.T) {
	const large, size, pageBytes = 100, 20_000, 50_000
	for name, c := range map[string]struct {
		small int   // objects that come first
		again int64 // bytes that a page of the repair takes at most
	}{
		"all":               {0, 3 * pageBytes},
		"behind small ones": {600, 2 * tooLarge * pageBytes},
	} {
		t.Run(name, func(t *testing.T) {
			// Over HTTP/2 a server sends megabytes before it learns that a client has had enough.
			bubbleOver(t, c.small, kubesim.Options{}, Options{pageBytes: pageBytes, repair: listFull},
				func(f *fixture) {
					change := func(seed uint64) {
						for i := range large {
							f.put(fmt.Sprintf("z%03d", i), size, seed+uint64(i))
						}
					}
					most := func() (most, all int64) {
						for _, r := range f.sim.Requests() {
							if r.Verb == "list" {
								most, all = max(most, r.BodyBytes), all+r.BodyBytes
							}
						}
						return most, all
					}
					change(0)
					end := f.live()
					after(10 * time.Second)
					if d := f.differs(); d != "" || !f.queue.HasSynced() {
						t.Fatal(d, f.State())
					}
					if page, all := most(); page > 2*tooLarge*pageBytes || all > 3*large*size {
						t.Errorf("the first list: pages of up to %d bytes, %d in all", page, all)
					}
					f.die(end)
					f.forget()
					change(1000)
					f.sim.Compact()
					f.reflect()
					after(time.Minute)
					if d := f.differs(); d != "" || f.State().Relists[ReasonExpired] != 1 {
						t.Fatal(d, f.State())
					}
					if page, all := most(); page > c.again || all > 3*large*size {
						t.Errorf("the repair: pages of up to %d bytes, %d in all", page, all)
					}
				})
		})
	}
}

// TestListFunctionThatPages: a list function may read all pages itself. None of them is
// too large because of those before it.
func TestListFunctionThatPages(t *testing.T) {
	const objects, size, pageBytes = 1000, 300, 20_000
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	f := fixtureWith(t, sim, 0, clock.RealClock{}, Options{pageBytes: pageBytes}, func(*rest.Config) {},
		func(lw cache.ListerWatcher) cache.ListerWatcher {
			from := cache.ToListerWatcherWithContext(lw)
			return &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					list, _, err := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
						return from.ListWithContext(ctx, o)
					})).List(ctx, o)
					return list, err
				},
				WatchFuncWithContext: from.WatchWithContext,
			}
		})
	for i := range objects {
		f.put(fmt.Sprintf("cm%04d", i), size, uint64(i))
	}
	f.forget()
	f.list()
	if d := f.differs(); d != "" {
		t.Error(d)
	}
	if n := f.traffic(); n.pages > 2*objects/firstPage {
		t.Errorf("%+v", n)
	}
}
