package metrics_test

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/metrics"
)

// A program serves its metrics, and says whether it is ready and alive.
func ExampleNewCollector() {
	run := func(db *boltstore.DB) error {
		prometheus.MustRegister(metrics.NewCollector(db))
		http.Handle("/metrics", promhttp.Handler())
		for path, check := range map[string]func(*http.Request) error{
			"/readyz": informer.Ready(db, 0), "/healthz": informer.Live(db),
		} {
			http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
				if err := check(r); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
				}
			})
		}
		return http.ListenAndServe("127.0.0.1:8080", nil)
	}
	_ = run // it needs a server
}
