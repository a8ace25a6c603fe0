package informer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// farConn is a connection whose bytes take half a round trip each way.
type farConn struct {
	net.Conn
	in, out chan arrival
	rest    []byte
}

type arrival struct {
	at   time.Time
	data []byte
	err  error
}

func far(inner net.Conn, trip time.Duration) *farConn {
	c := &farConn{Conn: inner, in: make(chan arrival, 4096), out: make(chan arrival, 4096)}
	go func() {
		for {
			buf := make([]byte, 64<<10)
			n, err := inner.Read(buf)
			c.in <- arrival{time.Now().Add(trip / 2), buf[:n], err}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for a := range c.out {
			time.Sleep(time.Until(a.at)) // it is what a far link does
			if _, err := inner.Write(a.data); err != nil {
				return
			}
		}
	}()
	return c
}

func (c *farConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		a := <-c.in
		if a.err != nil {
			c.in <- a
			return 0, a.err
		}
		time.Sleep(time.Until(a.at)) // it is what a far link does
		c.rest = a.data
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *farConn) Write(p []byte) (int, error) {
	c.out <- arrival{time.Now(), append([]byte(nil), p...), nil}
	return len(p), nil
}

// dialFar connects over a link with such round trips, and shows them to traces.
func dialFar(trip time.Duration) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if t := httptrace.ContextClientTrace(ctx); t != nil && t.ConnectStart != nil {
			t.ConnectStart(network, addr)
			defer t.ConnectDone(network, addr, nil)
		}
		time.Sleep(trip) // it is what a far link does
		conn, err := (&net.Dialer{}).DialContext(context.WithoutCancel(context.Background()), network, addr)
		if err != nil {
			return nil, err
		}
		return far(conn, trip), nil
	}
}

// BenchmarkWakeOverLink is the time to HasSynced of client-go's informer, and of one that
// wakes beside it, if nothing of its type has changed. Both strip managed fields.
func BenchmarkWakeOverLink(b *testing.B) {
	klog.SetLogger(logr.Discard())
	for _, objects := range []int{10, 100, 1000, 5000} {
		sim := kubesim.New(kubesim.Options{HTTP2: true})
		if _, err := sim.Start(); err != nil {
			b.Fatal(err)
		}
		for i := range objects {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("cm", i)},
				Data: map[string]string{"of": strings.Repeat(fmt.Sprint(i, " "), 100)}}
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 400),
				Operation: metav1.ManagedFieldsOperationUpdate}}
			if err := sim.Create(o); err != nil {
				b.Fatal(err)
			}
		}
		for _, trip := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
			path := filepath.Join(b.TempDir(), "cache.db")
			for _, kind := range []string{"fill", "stock", "ours"} {
				run := func(b *testing.B) {
					for i := range b.N {
						b.StopTimer()
						if err := sim.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(kind,
							trip.Microseconds(), "-", b.N, "-", i)}}); err != nil {
							b.Fatal(err)
						}
						b.StartTimer()
						wakeOver(b, sim, path, kind == "stock", trip)
					}
				}
				if kind == "fill" {
					wakeOver(b, sim, path, false, 0)
					wakeOver(b, sim, path, false, trip)
					continue
				}
				b.Run(fmt.Sprintf("%s/%d/%s", kind, objects, trip), run)
			}
		}
		sim.Close()
	}
}

func wakeOver(b *testing.B, sim *kubesim.Server, path string, stock bool, trip time.Duration) {
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	t := cfg.Transport.(*http.Transport).Clone()
	t.DialContext = dialFar(trip)
	cfg.Transport = t
	defer t.CloseIdleConnections()
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if !stock {
		cfg = reflector.WrapConfig(cfg)
	}
	synced := func(inf cache.SharedIndexInformer, cfg *rest.Config) {
		strip := func(obj any) (any, error) {
			obj.(*corev1.ConfigMap).ManagedFields = nil
			return obj, nil
		}
		if err := inf.SetTransform(strip); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		for !inf.HasSynced() {
			time.Sleep(time.Millisecond) // client-go's own wait polls every 100 ms
		}
		b.StopTimer()
		cancel()
		<-done
		b.StartTimer()
	}
	lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "configmaps", "",
		fields.Everything())
	if stock {
		synced(cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{}), cfg)
		return
	}
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, Options{TransformVersion: "1"})
	if err != nil {
		b.Fatal(err)
	}
	synced(inf, cfg)
	b.StopTimer()
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}
