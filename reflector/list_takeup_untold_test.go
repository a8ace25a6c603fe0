package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFirstListOfUntoldCluster: the UID of kube-system was read once, but may not be read
// any more, and another cluster answers. Its interrupted first list begins again.
func TestFirstListOfUntoldCluster(t *testing.T) {
	for _, third := range []bool{false, true} {
		t.Run(fmt.Sprint("third ", third), func(t *testing.T) {
			bubble(t, 9, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3}, func(f *fixture) {
				f.interrupted(0)
				if f.store.State().ClusterUID == "" {
					t.Fatal("the cluster was not noted")
				}
				f.sim.FailNext(func(r *http.Request) bool {
					return strings.HasSuffix(r.URL.Path, "/kube-system")
				}, 1<<30,
					kubesim.Answer(apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system",
						errors.New("no"))))
				f.recreate(500_000)
				for i := range 9 {
					f.create(fmt.Sprint("second", i))
				}
				f.interrupted(2)
				if third {
					f.recreate(1_000_000)
				}
				f.sim.ResetRequests()
				f.reflect()
				if !until(f.queue.HasSynced) {
					t.Fatalf("not synced: %s", f.State())
				}
				if n := f.traffic(); n.firsts != 1 {
					t.Errorf("%+v", n)
				}
				after(time.Minute)
				if d := f.differs(); d != "" {
					t.Errorf("%s: %v", d, f.store.ListKeys())
				}
			})
		})
	}
}
