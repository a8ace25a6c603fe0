package reflector

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestOwnWriteOfAnotherCluster: what a program has written before the first list, in one
// life, is not served of another cluster, which answers the next one.
func TestOwnWriteOfAnotherCluster(t *testing.T) {
	bubble(t, 3, kubesim.Options{InitialRV: 1_000_000}, Options{pageSize: 3}, func(f *fixture) {
		f.create("ours")
		if err := f.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ours", UID: "u", ResourceVersion: "1000100"}}); err != nil {
			t.Fatal(err)
		}
		f.interrupted(1)
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
}
