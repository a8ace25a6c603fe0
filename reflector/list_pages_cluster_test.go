package reflector

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// overBoth is a server over each protocol.
func overBoth(t *testing.T, test func(t *testing.T, so kubesim.Options)) {
	t.Helper()
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", two), func(t *testing.T) { test(t, kubesim.Options{InitialRV: 100, HTTP2: two}) })
	}
}

// replaced returns a function that makes another cluster answer, which has some of the same
// names and is at a later version. The old connections are lost before any request fails.
func (f *fixture) replaced() func() {
	return sync.OnceFunc(func() {
		time.Sleep(time.Millisecond) // on the bubble's clock, which takes no time: what was answered has come by then
		if err := f.sim.Recreate(10); err != nil {
			f.t.Error(err)
		}
		for i := range 300 {
			if err := f.sim.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}); err != nil {
				f.t.Error(err)
			}
		}
		for i := range 10 {
			f.put(fmt.Sprintf("cm%04d", i), 20_000, uint64(100+i))
		}
		time.Sleep(time.Millisecond) // on the bubble's clock, which takes no time: the client has noticed by then
	})
}

// TestAnotherClusterOverAnotherConnection: between two pages, or before the first one, the
// connection is lost, and another cluster, which takes the token, answers over the next one.
// No request has failed.
func TestAnotherClusterOverAnotherConnection(t *testing.T) {
	for _, before := range []int{5, 1} { // in a first list, in a repair
		overBoth(t, func(t *testing.T, so kubesim.Options) {
			bubbleOver(t, 30, so, Options{pageSize: 3}, func(f *fixture) {
				if before == 1 {
					f.list()
					f.takeTold()
					f.forget()
					f.link.expired()
				}
				replace, pages := f.replaced(), map[string]bool{}
				f.breaks.Store(new(func(req *http.Request) error {
					if q := req.URL.Query(); q.Get("limit") != "" && q.Get("fieldSelector") == "" {
						if pages[q.Get("continue")] = true; len(pages) == before {
							replace()
						}
					}
					return nil
				}))
				f.reflect()
				after(time.Minute)
				f.ofTheCluster()
			})
		})
	}
}

// TestWatchOfAnotherCluster: the same before the watch of a source that has just been
// confirmed. The watch brings nothing of the other cluster.
func TestWatchOfAnotherCluster(t *testing.T) {
	overBoth(t, func(t *testing.T, so kubesim.Options) {
		bubbleOver(t, 30, so, Options{}, func(f *fixture) {
			f.list()
			f.takeTold()
			f.doubtLink()
			replace := f.replaced()
			f.breaks.Store(new(func(req *http.Request) error {
				if req.URL.Query().Get("watch") != "" {
					replace()
				}
				return nil
			}))
			f.reflect()
			after(time.Minute)
			f.ofTheCluster()
		})
	})
}

// TestClusterIsAskedOnce: the connection of the watch after a slow list is no reason to ask
// for the cluster. Over HTTP/1.1 a watch has one of its own.
func TestClusterIsAskedOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, so kubesim.Options) {
		bubbleOver(t, 0, so, Options{pageSize: 3}, func(f *fixture) {
			for i := range 60 {
				f.put(fmt.Sprintf("cm%04d", i), 20_000, uint64(i))
			}
			var asked atomic.Int32
			f.breaks.Store(new(func(req *http.Request) error {
				if strings.HasSuffix(req.URL.Path, "/kube-system") {
					asked.Add(1)
				}
				return nil
			}))
			f.sim.SetBandwidth(20_000)
			f.reflect()
			after(2 * time.Minute)
			most := int32(1)
			if !so.HTTP2 {
				most++ // for the watch, which has a connection of its own
			}
			if n := asked.Load(); !f.queue.HasSynced() || n > most {
				t.Errorf("asked %d times: %s", n, f.State())
			}
		})
	})
}
