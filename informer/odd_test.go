package informer

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const longest, shortest = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)

// TestOddOptions: no value of a bound or a time keeps an informer from its work,
// or has it do nothing else.
func TestOddOptions(t *testing.T) {
	cases := map[string]Options{}
	for _, d := range []time.Duration{-1, 1, shortest, longest} {
		cases[fmt.Sprint("ResyncPeriod ", int64(d))] = Options{ResyncPeriod: d}
		cases[fmt.Sprint("MaxStaleness ", int64(d))] = Options{MaxStaleness: d}
		cases[fmt.Sprint("AuditEvery ", int64(d))] = Options{AuditEvery: d}
		cases[fmt.Sprint("QuietTimeout ", int64(d))] = Options{QuietTimeout: d}
		cases[fmt.Sprint("HandlerGrace ", int64(d))] = Options{HandlerGrace: d}
	}
	for _, n := range []int64{-1, 1, math.MinInt64, math.MaxInt64} {
		cases[fmt.Sprint("PageSize ", n)] = Options{PageSize: n}
		cases[fmt.Sprint("BacklogBytes ", n)] = Options{BacklogBytes: int(n)}
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

// TestOddDurableOptions: no value of a bound or a time keeps a durable handler
// from being told, also of keys that are stuck for a while.
func TestOddDurableOptions(t *testing.T) {
	cases := map[string]DurableOptions{}
	for _, n := range []int{-1, 1, math.MinInt, math.MaxInt} {
		cases[fmt.Sprint("MaxPending ", n)] = DurableOptions{MaxPending: n, StuckAfter: time.Second}
		cases[fmt.Sprint("PendingBytes ", n)] = DurableOptions{PendingBytes: n, StuckAfter: time.Second}
	}
	for _, d := range []time.Duration{-1, 1, shortest, longest} {
		cases[fmt.Sprint("StuckAfter ", int64(d))] = DurableOptions{StuckAfter: d, MaxPending: 100}
		cases[fmt.Sprint("StuckAfter full ", int64(d))] = DurableOptions{StuckAfter: d, MaxPending: 2}
	}
	cases["Workers negative"] = DurableOptions{Workers: -1}
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
						time.Sleep(2 * time.Second) // on the bubble's clock, which takes no time
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
