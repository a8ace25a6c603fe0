package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/bench/measured"
)

// The readers of the stream.
const (
	streamStock      kind = "client-go"
	streamPlain      kind = "plain"       // kubewake with a plain handler
	streamDurable    kind = "durable"     // with a durable one
	streamDurableOld kind = "durable-old" // that looks at the previous object, too
	// These fill a file, without and with a durable handler.
	streamFill        kind = "fill"
	streamFillDurable kind = "fill-durable"
)

const streamEnv = "BENCH_STREAM"

// streamSpec is the task of a reader of the stream.
type streamSpec struct {
	Kind    kind
	Host    string
	DB      string
	Events  int
	Window  time.Duration
	Packed  bool
	Settle  time.Duration // to wait at the end before what was written is counted
	Scale   int           // only bookmarks come, and time is that many times as fast
	Profile string
}

// streamReport is its report at its end; the counts begin when it has synced.
type streamReport struct {
	Told      []int64 // unix ns at which the handler was called for event i
	Processor time.Duration
	Written   int64 // bytes given to write calls
	Commits   int   // with changes
	Allocated uint64
	Anon      int64
}

func streamChild(text string) error {
	var s streamSpec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	cfg := &rest.Config{Host: s.Host, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: protoType, AcceptContentTypes: protoType + ",application/json"}}
	if s.Kind != streamStock {
		reflector.WrapConfig(cfg)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
			return client.CoreV1().Pods("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("").Watch(ctx, o)
		},
	}
	told := make([]int64, s.Events)
	var count atomic.Int64
	done := make(chan struct{})
	note := func(obj any) {
		rv, err := strconv.Atoi(obj.(*corev1.Pod).ResourceVersion)
		if err != nil || rv <= firstRV || rv > firstRV+s.Events {
			return
		}
		told[rv-firstRV-1] = time.Now().UnixNano()
		if count.Add(1) == int64(s.Events) {
			close(done)
		}
	}
	plain := cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, obj any) {
		if old.(*corev1.Pod).UID != obj.(*corev1.Pod).UID {
			panic("another object")
		}
		note(obj)
	}}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	var shared cache.SharedIndexInformer
	var db *boltstore.DB
	var inf *informer.Informer
	if s.Kind == streamStock {
		shared = cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers)
	} else {
		o := boltstore.Options{Window: s.Window, ObjectMemory: objectMemory()}
		tuning.SetFile(&o, tuning.File{CompactRatio: -1})
		if s.Scale > 0 {
			defaults := [2]time.Duration{5 * time.Second, 10 * time.Minute}
			o.FlushInterval = defaults[0] / time.Duration(s.Scale)
			tuning.SetFile(&o, tuning.File{BookmarkInterval: defaults[1] / time.Duration(s.Scale)})
		}
		if s.Packed {
			o.Compression = boltstore.CompressionZstd
		}
		if db, err = boltstore.Open(s.DB, o); err != nil {
			return err
		}
		if inf, err = informer.NewSharedIndexInformer(db, lw, &corev1.Pod{}, informer.Options{Indexers: indexers}); err != nil {
			return err
		}
		shared = inf
	}
	var reg cache.ResourceEventHandlerRegistration
	switch s.Kind {
	case streamStock, streamPlain, streamFill:
		reg, err = shared.AddEventHandler(plain)
	case streamDurable, streamDurableOld:
		h := informer.DurableHandlerFunc(func(_ context.Context, e informer.Event) error {
			if s.Kind == streamDurableOld && e.Type == cache.Updated && e.Old().(*corev1.Pod).UID != e.Object.(*corev1.Pod).UID {
				panic("another object")
			}
			note(e.Object)
			return nil
		})
		reg, err = inf.AddDurableHandler("bench", h, informer.DurableOptions{})
	case streamFillDurable:
		reg, err = inf.AddDurableHandler("bench", informer.DurableHandlerFunc(func(context.Context, informer.Event) error { return nil }), informer.DurableOptions{})
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { shared.RunWithContext(ctx) })
	<-shared.HasSyncedChecker().Done()
	<-reg.HasSyncedChecker().Done()
	if s.Kind == streamFill || s.Kind == streamFillDurable {
		cancel()
		running.Wait()
		return db.Close()
	}
	time.Sleep(500 * time.Millisecond)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stopProfile, err := measured.Profile(s.Profile)
	if err != nil {
		return err
	}
	wrote := written()
	cpu := cpuTime()
	if err := measured.Tell(struct{}{}); err != nil { // ready
		return err
	}
	if s.Scale > 0 {
		for shared.LastSyncResourceVersion() != strconv.Itoa(firstRV+s.Events) {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(s.Settle)
		return measured.Tell(streamReport{Written: written() - wrote})
	}
	<-done
	r := streamReport{Processor: cpuTime() - cpu, Told: told, Anon: measured.Resident().Anon}
	stopProfile()
	runtime.ReadMemStats(&after)
	r.Allocated = after.TotalAlloc - before.TotalAlloc
	if err := measured.HeapProfile(s.Profile); err != nil {
		return err
	}
	time.Sleep(s.Settle)
	r.Written = written() - wrote
	if inf != nil {
		last := inf.Store().State().Seq
		first := uint64(0)
		for seq, commit := uint64(1), (time.Time{}); seq <= last; { // of one or more blocks
			entries, err := inf.GetIndexer().(*boltstore.Claimed).ReadJournal(seq)
			if err != nil {
				return err
			}
			first = cmp.Or(first, entries[0].Seq)
			if at := entries[0].Time; !at.Equal(commit) {
				commit = at
				r.Commits++
			}
			seq = entries[len(entries)-1].Seq + 1
		}
		// The oldest blocks may have been trimmed.
		r.Commits = int(float64(r.Commits) * float64(s.Events) / float64(last-first+1))
	}
	return measured.Tell(r)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// written returns how many bytes this process has given to write calls: nearly all of
// them are pages of the file. The kernel's other count, write_bytes, rounds up to larger
// units of its cache, and is up to ten times as high; the disk's own count agrees with
// this one. It is zero if the kernel has no such count.
func written() (n int64) {
	f, err := os.Open("/proc/self/io")
	if err != nil {
		return 0
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if value, ok := strings.CutPrefix(in.Text(), "wchar: "); ok {
			n, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return n
}
