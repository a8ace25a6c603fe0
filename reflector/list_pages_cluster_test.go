package reflector

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestAnotherClusterOverAnotherConnection: between two pages the connection is lost, and
// another cluster, which takes the token, answers over the next one. No request has failed.
// If the cluster's answers do not name their flow schema, only its UID shows that.
func TestAnotherClusterOverAnotherConnection(t *testing.T) {
	for _, so := range []kubesim.Options{{}, {HTTP2: true}, {NoFlowSchemas: true}, {HTTP2: true, NoFlowSchemas: true}} {
		t.Run(fmt.Sprint("silent ", so.NoFlowSchemas, " HTTP/2 ", so.HTTP2), func(t *testing.T) {
			so.InitialRV = 100
			watchPages(t, 30, so, Options{}, func(f *fixture, w *pageWatcher) {
				var once sync.Once
				w.send = func(page int) {
					if page != 5 {
						return
					}
					once.Do(func() {
						time.Sleep(time.Millisecond) // of the bubble: the page before it has come
						if err := f.sim.Recreate(10); err != nil {
							t.Error(err)
						}
						for i := range 30 {
							f.put(fmt.Sprintf("cm%04d", i), 20_000, uint64(100+i))
						}
						for i := range 300 { // it is later than the list
							if err := f.sim.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}); err != nil {
								t.Error(err)
							}
						}
						time.Sleep(time.Millisecond) // of the bubble: the client has noticed
					})
				}
				f.reflect()
				after(time.Minute)
				f.ofTheCluster()
			})
		})
	}
}
