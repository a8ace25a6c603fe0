package informer_test

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
)

// A program is ready when its pods are there, everything over the file has synced, and
// the server has confirmed it within the last quarter of an hour. A manager of
// controller-runtime takes the checks directly: mgr.AddReadyzCheck("cache", ready).
func ExampleReady() {
	run := func(db *boltstore.DB, pods cache.SharedIndexInformer) error {
		ready, live := informer.Ready(db, 15*time.Minute, pods), informer.Live(db)
		serve := func(check func(*http.Request) error) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if err := check(r); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
					return
				}
				fmt.Fprintln(w, "ok")
			}
		}
		http.Handle("/readyz", serve(ready))
		http.Handle("/healthz", serve(live))
		return http.ListenAndServe("127.0.0.1:8080", nil)
	}
	_ = run // it needs a server
}
