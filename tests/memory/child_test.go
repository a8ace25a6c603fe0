//go:build linux && !race

package memory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// specEnv holds the spec, as JSON, of the program that is measured.
const specEnv = "KUBEWAKE_MEMORY_SPEC"

// spec tells the program what to do.
type spec struct {
	Host, DB string
	Protobuf bool
	Stock    bool // client-go's informer
	Config   config
	Version  string        // to catch up with
	Settle   time.Duration // after that
	Enough   int64         // memory that ends Settle
	Profile  string        // file for a heap profile near the peak
}

// config is how the program uses the library.
type config struct {
	Indices  bool // two more indices and a transform
	Keyset   bool // the file is encrypted
	Packed   bool // payloads are compressed
	Durables int  // durable handlers, beside a plain one
	Previous bool // durable handlers look at the object that they acknowledged last
}

// report is the program's report. Memory is anonymous, in bytes.
type report struct {
	Began, Peak, Settled int64
	Took, Quiet          time.Duration // until all was told; and from there until near Settled
	Told                 int64
	Classes              map[string]uint64 // of Go's memory, near the peak
}

func TestMain(m *testing.M) {
	if s := os.Getenv(specEnv); s != "" {
		if err := child(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// counter is a typical handler: it looks at the objects that it is told.
type counter struct{ told atomic.Int64 }

func (c *counter) OnAdd(any, bool)   { c.told.Add(1) }
func (c *counter) OnUpdate(_, _ any) { c.told.Add(1) }
func (c *counter) OnDelete(any)      { c.told.Add(1) }

// durableCounter is a durable handler that acknowledges at once.
func durableCounter(c *counter, previous bool) informer.DurableHandler {
	return informer.DurableHandlerFunc(func(_ context.Context, e informer.Event) error {
		if old, ok := e.Old.(*corev1.Pod); previous && ok && old.UID != e.Object.(*corev1.Pod).UID {
			return fmt.Errorf("told %s with another object of before", e.Key)
		}
		c.told.Add(1)
		return nil
	})
}

func byNode(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }

func byImage(obj any) (images []string, _ error) {
	for _, c := range obj.(*corev1.Pod).Spec.Containers {
		images = append(images, c.Image)
	}
	return images, nil
}

// dropFields is a typical transform.
func dropFields(obj any) (any, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		p.ManagedFields = nil
	}
	return obj, nil
}

// open makes the informer of a spec.
func open(s spec, lw cache.ListerWatcher) (cache.SharedIndexInformer, *boltstore.DB, error) {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if s.Stock {
		return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers), nil, nil
	}
	file := boltstore.Options{ObjectMemory: 8 << 20} // the default where there is no memory limit
	if s.Config.Keyset {
		file.Keyset = sealtest.Keyset()
	}
	if s.Config.Packed {
		file.Compression = boltstore.CompressionZstd
	}
	o := informer.Options{Indexers: indexers}
	if s.Config.Indices {
		indexers["node"], indexers["image"] = byNode, byImage
		o.Transform, o.TransformVersion = dropFields, "1"
	}
	db, err := boltstore.Open(s.DB, file)
	if err != nil {
		return nil, nil, err
	}
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.Pod{}, o)
	return inf, db, err
}

func child(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	cfg := &rest.Config{Host: s.Host, QPS: -1}
	if s.Protobuf {
		cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
			"application/vnd.kubernetes.protobuf,application/json"
	}
	client, err := kubernetes.NewForConfig(reflector.WrapConfig(cfg))
	if err != nil {
		return err
	}
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything())
	inf, db, err := open(s, lw)
	if err != nil {
		return err
	}
	h := &counter{}
	reg, err := inf.AddEventHandler(h)
	if err != nil {
		return err
	}
	synced := []cache.InformerSynced{reg.HasSynced}
	for n := range s.Config.Durables {
		reg, err := inf.(*informer.Informer).AddDurableHandler(fmt.Sprint("durable ", n),
			durableCounter(h, s.Config.Previous), informer.DurableOptions{})
		if err != nil {
			return err
		}
		synced = append(synced, reg.HasSynced)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	began := time.Now()
	r := report{Began: anonymous()}
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	const sample = 10 * time.Millisecond
	profiled := int64(0)
	for lastTold, lastAt := int64(-1), began; ; time.Sleep(sample) { // memory is sampled: nothing signals its peak
		now := anonymous()
		if r.Peak = max(r.Peak, now); s.Profile != "" && now > profiled+4<<20 {
			profiled = now
			r.Classes = classes()
			if err := heapProfile(s.Profile); err != nil {
				return err
			}
		}
		if n := h.told.Load(); n != lastTold {
			lastTold, lastAt = n, time.Now()
		}
		c, err := resourceversion.CompareResourceVersion(inf.LastSyncResourceVersion(), s.Version)
		if all(synced) && err == nil && c >= 0 && time.Since(lastAt) > 300*time.Millisecond {
			r.Took = lastAt.Sub(began)
			break
		}
		if time.Since(began) > 5*time.Minute {
			return fmt.Errorf("at %s, not at %s", inf.LastSyncResourceVersion(), s.Version)
		}
	}
	if r.Told = h.told.Load(); s.Settle > 0 {
		debug.FreeOSMemory() // Go does so by itself, but within minutes
		caught := time.Now()
		var seen []int64
		for time.Since(caught) < s.Settle {
			now := anonymous()
			r.Peak = max(r.Peak, now)
			seen = append(seen, now)
			if now <= s.Enough {
				break
			}
			time.Sleep(10 * sample) // memory is sampled: nothing signals that it falls
		}
		r.Settled = seen[len(seen)-1]
		for i, n := range seen {
			if n <= r.Settled*12/10 {
				r.Quiet = time.Duration(i) * 10 * sample
				break
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	cancel()
	<-done
	if db != nil {
		return db.Close()
	}
	return nil
}

func all(synced []cache.InformerSynced) bool {
	for _, fn := range synced {
		if !fn() {
			return false
		}
	}
	return true
}

// classes returns Go's figures about its memory, in MiB.
func classes() map[string]uint64 {
	names := []string{"/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes",
		"/memory/classes/heap/free:bytes",
		"/memory/classes/heap/stacks:bytes", "/memory/classes/os-stacks:bytes",
		"/memory/classes/metadata/mspan/inuse:bytes", "/memory/classes/metadata/other:bytes",
		"/memory/classes/profiling/buckets:bytes", "/gc/heap/live:bytes", "/gc/heap/goal:bytes", "/gc/scan/stack:bytes"}
	var samples []metrics.Sample
	for _, n := range names {
		samples = append(samples, metrics.Sample{Name: n})
	}
	metrics.Read(samples)
	got := map[string]uint64{}
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			got[s.Name] = s.Value.Uint64() >> 20
		}
	}
	return got
}

func heapProfile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}

// anonymous returns the process's resident memory without pages of files.
func anonymous() int64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
		if name, value, _ := strings.Cut(in.Text(), ":"); name == "RssAnon" {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}
