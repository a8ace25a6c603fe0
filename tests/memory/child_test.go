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
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
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
	Stock    bool          // client-go's informer
	Version  string        // to catch up with
	Settle   time.Duration // after that
	Profile  string        // file for a heap profile near the peak
}

// report is what the program says. Memory is anonymous, in bytes.
type report struct {
	Began, Peak, Settled int64
	Took, Quiet          time.Duration // until all was told; and from there until near Settled
	Told                 int64
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

// counter is a handler that is like most: it looks at what it is told.
type counter struct{ told atomic.Int64 }

func (c *counter) OnAdd(any, bool)   { c.told.Add(1) }
func (c *counter) OnUpdate(_, _ any) { c.told.Add(1) }
func (c *counter) OnDelete(any)      { c.told.Add(1) }

func child(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	cfg := &rest.Config{Host: s.Host, QPS: -1}
	if s.Protobuf {
		cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	}
	client, err := kubernetes.NewForConfig(reflector.WrapConfig(cfg))
	if err != nil {
		return err
	}
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything())
	var inf cache.SharedIndexInformer
	var db *boltstore.DB
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if s.Stock {
		inf = cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers)
	} else {
		if db, err = boltstore.Open(s.DB, boltstore.Options{}); err != nil {
			return err
		}
		if inf, err = informer.NewSharedIndexInformer(db, lw, &corev1.Pod{}, informer.Options{Indexers: indexers}); err != nil {
			return err
		}
	}
	h := &counter{}
	reg, err := inf.AddEventHandler(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	began := time.Now()
	r := report{Began: anonymous()}
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	const sample = 10 * time.Millisecond
	profiled := int64(0)
	for lastTold, lastAt := int64(-1), began; ; time.Sleep(sample) {
		now := anonymous()
		if r.Peak = max(r.Peak, now); s.Profile != "" && now > profiled+8<<20 {
			profiled = now
			if err := heapProfile(s.Profile); err != nil {
				return err
			}
		}
		if n := h.told.Load(); n != lastTold {
			lastTold, lastAt = n, time.Now()
		}
		c, err := resourceversion.CompareResourceVersion(inf.LastSyncResourceVersion(), s.Version)
		if reg.HasSynced() && err == nil && c >= 0 && time.Since(lastAt) > 300*time.Millisecond {
			r.Took = lastAt.Sub(began)
			break
		}
		if time.Since(began) > 5*time.Minute {
			return fmt.Errorf("at %s, not at %s", inf.LastSyncResourceVersion(), s.Version)
		}
	}
	if r.Told = h.told.Load(); s.Settle > 0 {
		caught := time.Now()
		var all []int64
		for time.Since(caught) < s.Settle {
			now := anonymous()
			r.Peak = max(r.Peak, now)
			all = append(all, now)
			time.Sleep(10 * sample)
		}
		r.Settled = all[len(all)-1]
		for i, n := range all {
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

func heapProfile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}

// anonymous is the process's resident memory that is not of files.
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
