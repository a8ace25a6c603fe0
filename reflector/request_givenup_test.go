package reflector

import (
	"context"
	"errors"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestQuestionGivenUp: the transport may send a question after the program has given it
// up. Then the answer is not read: the race detector would notice.
func TestQuestionGivenUp(t *testing.T) {
	type givesUp struct{}
	cfg := WrapConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			req.Context().Value(givesUp{}).(context.CancelFunc)()
			return next.RoundTrip(req)
		})
	})
	client := dynamic.NewForConfigOrDie(cfg).Resource(widgets)
	lw := &cache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, o)
	}, WatchFuncWithContext: client.Watch}
	r := &requests{raw: lw, server: cfg.Host}
	for range 100 {
		for name, ask := range map[string]func(context.Context) error{
			"form":    func(ctx context.Context) error { _, _, err := r.form(ctx, false); return err },
			"cluster": func(ctx context.Context) error { _, err := r.clusterUID(ctx); return err },
			"source":  func(ctx context.Context) error { _, _, err := Identify(ctx, lw, widget("", "")); return err },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			err := ask(context.WithValue(ctx, givesUp{}, cancel))
			cancel()
			if err == nil && name != "source" { // which needs no answer
				t.Fatalf("%s: an answer from nowhere", name)
			}
			if errors.Is(err, ErrUnidentified) {
				t.Fatalf("%s: a wrong reason: %v", name, err)
			}
		}
	}
}
