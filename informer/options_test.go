package informer

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

const longest, shortest = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)

// byData indexes config maps by their content and by the name of the function's version.
func byData(version string) cache.Indexers {
	return cache.Indexers{"data": func(o any) ([]string, error) {
		if cm, ok := o.(*corev1.ConfigMap); ok {
			return []string{version + cm.Data["data"]}, nil
		}
		return nil, nil
	}}
}

// TestOptionsArrive: these options for the file or the source take effect. The effect is
// shown beside an informer without the option.
func TestOptionsArrive(t *testing.T) {
	same := func(o any) (any, error) { return o, nil }
	indexed := func(l *life) string {
		l.run().synced()
		return fmt.Sprint(l.inf.GetIndexer().ListIndexFuncValues("data"))
	}
	served := func(l *life) string {
		if err := l.sim.RefuseConnections(true); err != nil {
			l.t.Fatal(err)
		}
		l.run()
		after(time.Minute)
		return fmt.Sprint(len(l.inf.GetStore().ListKeys()), l.inf.State().Phase)
	}
	for name, tc := range map[string]struct {
		first, with, without Options
		shows                func(l *life) string
		wants, else_         string
	}{
		"AuditEvery": {
			with: Options{Reflector: reflector.Options{AuditEvery: time.Hour}},
			shows: func(l *life) string {
				l.run().synced()
				audited := func() bool { return l.inf.State().Relists[reflector.ReasonAudit] > 0 }
				after(29 * time.Minute)
				early := audited()
				after(32 * time.Minute) // it comes after half to a whole hour, so there may be two
				return fmt.Sprint("early ", early, ", ever ", audited())
			},
			wants: "early false, ever true", else_: "early false, ever false",
		},
		"PurgeDenied": {
			with: Options{Reflector: reflector.Options{PurgeDenied: true}},
			shows: func(l *life) string {
				on := &atomic.Bool{}
				l.sim.FailNext(func(r *http.Request) bool {
					return on.Load() && strings.HasSuffix(r.URL.Path, "/configmaps")
				}, 1<<30,
					kubesim.Answer(apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no"))))
				l.run().synced()
				on.Store(true)
				l.sim.DropConnections()
				after(5 * time.Minute)
				return fmt.Sprint(len(l.inf.GetStore().ListKeys()), l.inf.State().Phase)
			},
			wants: "0denied", else_: "1denied",
		},
		"QuietTimeout": {
			with: Options{Reflector: tuned(tuning.Reflector{QuietTimeout: 20 * time.Second})},
			shows: func(l *life) string {
				l.run().synced()
				after(time.Second)
				l.sim.Mute()
				l.create("missed")
				after(30 * time.Second)
				return fmt.Sprint(len(l.inf.GetStore().ListKeys()))
			},
			wants: "2", else_: "1",
		},
		"ServeOutdated": {
			first:   Options{Transform: same, TransformVersion: "1"},
			with:    Options{Transform: same, TransformVersion: "2", ServeOutdated: true},
			without: Options{Transform: same, TransformVersion: "2"},
			shows:   served,
			wants:   "1offline", else_: "0offline",
		},
		"IndexVersions": {
			first:   Options{Indexers: byData("old "), IndexVersions: map[string]string{"data": "1"}},
			with:    Options{Indexers: byData("new "), IndexVersions: map[string]string{"data": "2"}},
			without: Options{Indexers: byData("new "), IndexVersions: map[string]string{"data": "1"}},
			shows:   indexed,
			wants:   "[new x]", else_: "[old x]",
		},
		"Cluster": {
			with:  Options{Reflector: reflector.Options{Cluster: "edge"}},
			shows: served,
			wants: "0offline", else_: "1offline", // it is another source
		},
	} {
		t.Run(name, func(t *testing.T) {
			for want, o := range map[string]Options{tc.wants: tc.with, tc.else_: tc.without} {
				bubble(t, func(t *testing.T, w *world) {
					w.create("a", "x")
					w.live(tc.first).run().synced().end()
					if got := tc.shows(w.live(o)); got != want {
						t.Errorf("%+v: %s, want %s", o, got, want)
					}
				})
			}
		})
	}
}

// TestAnyOptionValues: no value of a bound or a time keeps an informer from its work, or
// makes it loop.
func TestAnyOptionValues(t *testing.T) {
	cases := map[string]Options{}
	for _, d := range []time.Duration{-1, 1, shortest, longest} {
		cases[fmt.Sprint("ResyncPeriod ", int64(d))] = Options{ResyncPeriod: d}
		cases[fmt.Sprint("MaxStaleness ", int64(d))] = Options{MaxStaleness: d}
		cases[fmt.Sprint("AuditEvery ", int64(d))] = Options{Reflector: reflector.Options{AuditEvery: d}}
		cases[fmt.Sprint("QuietTimeout ", int64(d))] = Options{Reflector: tuned(tuning.Reflector{QuietTimeout: d})}
		cases[fmt.Sprint("handlerGrace ", int64(d))] = Options{handlerGrace: d}
	}
	for _, n := range []int64{-1, 1, math.MinInt64, math.MaxInt64} {
		cases[fmt.Sprint("PageSize ", n)] = Options{Reflector: tuned(tuning.Reflector{PageSize: n})}
		cases[fmt.Sprint("backlogBytes ", n)] = Options{backlogBytes: int(n)}
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				for i := range 5 {
					w.create(fmt.Sprint("o", i))
				}
				r := newRecorder(t)
				l := w.live(o, r).run().synced().equal()
				w.sim.ResetRequests()
				began := time.Now()
				for i := range 5 {
					w.update(fmt.Sprint("o", i), "x")
					l.equal()
				}
				w.sim.DropConnections()
				w.create("another")
				l.equal()
				eventually(t, "told", func() bool { return len(r.names()) == 6 })
				after(10 * time.Minute)
				if n, took := len(w.sim.Requests()), time.Since(began); n > 30+int(took/(10*time.Second)) {
					t.Errorf("%d requests in %s", n, took)
				}
				l.end()
				l = w.live(o, r).run().synced().equal()
				l.end()
			})
		})
	}
}

// TestAnyDurableOptionValues: no value of an option keeps a durable handler from being
// told, also of keys that are stuck for a while.
func TestAnyDurableOptionValues(t *testing.T) {
	cases := map[string]DurableOptions{
		"none": {}, "Workers negative": {Workers: -1}, "many Workers": {Workers: 100},
		"longest backoff": {RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Minute,
			longest)},
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var stuck atomic.Bool
				r := newLedger(t)
				var later atomic.Value
				r.answers(func(e Event) error {
					switch cm, ok := e.Object.(*corev1.ConfigMap); {
					case !ok, !stuck.Load(), cm.Data["data"] != "stuck":
						return nil
					case cm.Name == "o1":
						time.Sleep(2 * time.Second) // on the bubble's clock, which takes no time: the handler is slow
						return nil
					case cm.Name == "o0":
						later.Store(e)
						return ErrAckLater
					}
					return errors.New("no")
				})
				for i := range 5 {
					w.create(fmt.Sprint("o", i))
				}
				l := w.durably(o, r).run().synced()
				l.acknowledged()
				stuck.Store(true)
				for i := range 4 {
					w.update(fmt.Sprint("o", i), "stuck")
				}
				w.create("good")
				after(10 * time.Minute)
				stuck.Store(false)
				if e, ok := later.Load().(Event); ok {
					e.Ack()
				}
				after(10 * time.Minute)
				l.acknowledged()
				if got := len(r.names()); got != 6 {
					t.Errorf("told of %d", got)
				}
				l.end()
			})
		})
	}
}
