package reflector

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
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
	lw := &cache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
		error) {
		return client.List(ctx, o)
	}, WatchFuncWithContext: client.Watch}
	r := &requests{raw: lw, server: cfg.Host}
	for range 100 {
		for name, ask := range map[string]func(context.Context) error{
			"form":    func(ctx context.Context) error { _, err := r.form(ctx, time.Now()); return err },
			"cluster": func(ctx context.Context) error { _, err := r.clusterUID(ctx, time.Now()); return err },
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

// TestGivenUpWatch: a watch that opens after its caller has gone is stopped and read to its
// end. A watch that watch.Filter wraps, as controller-runtime's of metadata, would leave a
// goroutine behind.
func TestGivenUpWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := watch.NewFakeWithChanSize(1, false)
		server.Add(widget("web", "a"))
		opened := watch.Filter(server, func(ev watch.Event) (watch.Event, bool) { return ev, true })
		ctx, giveUp := context.WithCancel(t.Context())
		gone := make(chan struct{})
		r := &requests{clock: clock.RealClock{},
			lw: &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context,
				_ metav1.ListOptions) (watch.Interface, error) {
				ctx.Value(pulseKey{}).(*pulse).seen.Store(true)
				giveUp()
				<-gone
				return opened, nil
			}}}
		if _, _, _, err := r.watch(ctx, time.Minute, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		close(gone)
		synctest.Wait()
		if ev, ok := <-opened.ResultChan(); ok {
			t.Errorf("nobody has read %s %T", ev.Type, ev.Object)
		}
	})
}
