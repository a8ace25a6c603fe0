package reflector

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// put creates or changes a config map whose content does not compress.
func (f *fixture) put(name string, size int, seed uint64) {
	f.t.Helper()
	data := make([]byte, size)
	for i, r := 0, rand.New(rand.NewPCG(seed, 7)); i < size; i++ {
		data[i] = byte('!' + r.IntN(90))
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"": string(data)}}
	err := f.sim.Update(o)
	if apierrors.IsNotFound(err) {
		err = f.sim.Create(o)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// event returns a function that answers a watch with an event of the object as it is now.
func (f *fixture) event(typ watch.EventType, name string) func(w http.ResponseWriter) {
	f.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := f.sim.Get(cm); err != nil {
		f.t.Fatal(err)
	}
	cm.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return func(w http.ResponseWriter) {
		if err := json.NewEncoder(w).Encode(map[string]any{"type": typ, "object": cm}); err != nil {
			f.t.Error(err)
		}
		w.(http.Flusher).Flush()
	}
}

// lateWatch answers the next watch with its headers, with one event after a while, and with
// nothing more.
func (f *fixture) lateWatch(after time.Duration, event func(http.ResponseWriter)) {
	f.sim.FailNext(isWatch, 1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		// the bubble's clock, which takes no time; without it the event comes before the list is
		// compared, and no signal says that it was
		time.Sleep(after) // on the bubble's clock, see above
		event(w)
		<-r.Context().Done()
	})
}

// differs says how the file differs from the server.
func (f *fixture) differs() string {
	want, _, err := f.sim.List(&corev1.ConfigMap{})
	if err != nil {
		return err.Error()
	}
	if n := len(f.store.ListKeys()); n != len(want) {
		return fmt.Sprintf("%d objects, want %d", n, len(want))
	}
	for _, o := range want {
		got, ok, err := f.store.GetByKey(o.GetNamespace() + "/" + o.GetName())
		if m, ok := got.(*corev1.ConfigMap); ok && strings.HasPrefix(m.ResourceVersion, "v") {
			o.SetResourceVersion("v" + o.GetResourceVersion()) // see opaque
		}
		if err != nil || !ok || !apiequality.Semantic.DeepEqual(got, o) {
			return fmt.Sprintf("%s differs: %v", o.GetName(), err)
		}
	}
	return ""
}

// every calls a function in the background, for the rest of the bubble.
func (f *fixture) every(d time.Duration, do func(i int)) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-time.After(d):
				do(i)
			case <-done:
				return
			}
		}
	}()
	f.t.Cleanup(func() { close(done); <-ended })
}
