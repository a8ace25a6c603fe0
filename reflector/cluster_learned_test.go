package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestUIDLearnedLater: a cluster that does not state the UID of kube-system at the first
// list, since it has just started, is asked again. So a cluster that is recreated at the
// same address is recognized as another one, and nothing is told as deleted.
func TestUIDLearnedLater(t *testing.T) {
	namespaces := corev1.Resource("namespaces")
	for what, answer := range map[string]*apierrors.StatusError{
		"not there yet":     apierrors.NewNotFound(namespaces, "kube-system"),
		"not allowed yet":   apierrors.NewForbidden(namespaces, "kube-system", errors.New("no rules yet")),
		"with broken links": nil,
	} {
		for _, another := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, another life %v", what, another), func(t *testing.T) {
				bubble(t, 6, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3}, func(f *fixture) {
					starting, broken := atomic.Bool{}, atomic.Bool{}
					starting.Store(true)
					first := answer
					if first == nil {
						first = apierrors.NewNotFound(namespaces, "kube-system")
					}
					kube := func(on *atomic.Bool) func(*http.Request) bool {
						return func(r *http.Request) bool {
							return on.Load() && strings.HasSuffix(r.URL.Path, "/kube-system")
						}
					}
					f.sim.FailNext(kube(&starting), 1<<30, kubesim.Answer(first))
					f.sim.FailNext(kube(&broken), 1<<30, nil)
					end := f.live()
					if !until(f.queue.HasSynced) {
						t.Fatal("not synced")
					}
					f.takeTold()
					starting.Store(false)
					if answer == nil {
						broken.Store(true)
						f.sim.DropConnections()
						after(time.Minute)
						broken.Store(false)
					}
					if another || answer != nil && apierrors.IsForbidden(answer) {
						f.die(end)
						end = f.live()
					} else {
						f.sim.DropConnections()
					}
					f.t.Cleanup(func() { end() })
					if after(time.Minute); f.store.State().ClusterUID != f.clusterUID() {
						t.Errorf("it is %s, and noted is %q", f.clusterUID(), f.store.State().ClusterUID)
					}
					f.recreate(1_000_000)
					// the queue may not know yet
					if !until(func() bool { return f.store.Upstream.Epoch() == 1 && f.differs() == "" }) {
						t.Errorf("not emptied: %s", f.State())
					}
					f.ofTheCluster()
				})
			})
		}
	}
}
