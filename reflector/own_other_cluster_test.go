package reflector

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestOwnWriteOfAnotherCluster: an own write before the end of the first list, in one
// life, is not served for another cluster, which answers in the next life.
func TestOwnWriteOfAnotherCluster(t *testing.T) {
	for _, when := range []string{"before the list", "while its pages come"} {
		t.Run(when, func(t *testing.T) {
			bubble(t, 6, kubesim.Options{InitialRV: 1_000_000}, Options{pageSize: 3}, func(f *fixture) {
				f.create("ours")
				write := func() {
					if err := f.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ours", UID: "u", ResourceVersion: "1000100"}}); err != nil {
						t.Fatal(err)
					}
				}
				if when == "before the list" {
					write()
					f.interrupted(1)
				} else {
					f.interrupted(1, write)
				}
				f.recreate(500)
				f.reflect()
				if !until(f.queue.HasSynced) {
					t.Fatal("not synced")
				}
				after(time.Hour)
				if d := f.differs(); d != "" {
					t.Errorf("%s: %v", d, f.store.ListKeys())
				}
			})
		})
	}
}
