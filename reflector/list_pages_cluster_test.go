package reflector

import (
	"fmt"
	"net/http"
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

// TestEarlyAnswerIsNotDated: the answer to an early request may be minutes old when its turn
// comes. Its date does not vouch for the device's clock.
func TestEarlyAnswerIsNotDated(t *testing.T) {
	over := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}, Body: http.NoBody}, nil
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/api/v1/configmaps", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp := sendEarly(over, req, func() {}, 3).answer(req)
	if date := resp.Header.Get("Date"); date != "" {
		t.Errorf("dated %s", date)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}
