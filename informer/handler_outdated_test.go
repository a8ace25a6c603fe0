package informer

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/tuning"
)

// TestHandlerBesideACutOffList: with ServeOutdated, a handler that is added while a list under
// another transform is cut off
// is told the objects that readers see.
func TestHandlerBesideACutOffList(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		w.create(fmt.Sprintf("o%03d", i), strings.Repeat("x", 100))
	}
	tuning.SetFile(&w.options, tuning.File{MaxCommitBytes: 3000})
	w.live(Options{}).run().synced().end()
	o := Options{ServeOutdated: true, TransformVersion: "2", Transform: func(obj any) (any, error) {
		obj.(metav1.Object).SetAnnotations(map[string]string{"form": "2"})
		return obj, nil
	}}
	tuning.SetReflector(&o.Reflector, tuning.Reflector{PageSize: 20})
	refused := make(chan bool, 1000)
	w.sim.FailNext(func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "configmaps") && r.URL.Query().Get("continue") != "" &&
			r.URL.Query().Get("watch") == ""
	}, 1000, func(rw http.ResponseWriter, r *http.Request) {
		refused <- true
		http.Error(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden"}`,
			http.StatusForbidden)
	})
	l := w.live(o).run()
	<-refused
	<-refused // the first list has ended
	h := newRecorder(t)
	if _, err := l.inf.AddEventHandler(h); err != nil {
		t.Fatal(err)
	}
	eventually(t, "told what readers see", func() bool { return len(h.names()) == len(l.inf.GetStore().List()) })
	l.end()
}
