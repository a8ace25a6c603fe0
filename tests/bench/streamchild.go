package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"runtime"
	"slices"
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
	streamDurableOld kind = "durable-old" // that looks at the object of before, too
	streamDurable3   kind = "durable-3"   // with three
	// These fill a file, without and with durable handlers.
	streamFill         kind = "fill"
	streamFillDurable  kind = "fill-durable"
	streamFillDurable3 kind = "fill-durable-3"
)

// filling is the kind that fills a file for a kind.
func filling(k kind) kind {
	switch k {
	case streamDurable, streamDurableOld:
		return streamFillDurable
	case streamDurable3:
		return streamFillDurable3
	default:
		return streamFill
	}
}

func fills(k kind) bool {
	return k == streamFill || k == streamFillDurable || k == streamFillDurable3
}

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
	Told      []int64 // unix ns at which the handler was called for event i; 0: for a later one of the pod only
	Processor time.Duration
	Written   int64 // bytes given to write calls
	Commits   int   // with changes
	Allocated uint64
	Anon      int64
}

// streamReader is a measured reader.
type streamReader struct {
	streamSpec
	informer cache.SharedIndexInformer
	db       *boltstore.DB      // nil if it is client-go's
	kept     *informer.Informer // the same
	told     []int64
	count    atomic.Int64
	done     chan struct{} // closed when all events, or a durable handler's last one, have been told
}

func streamChild(text string) error {
	r := &streamReader{done: make(chan struct{})}
	if err := json.Unmarshal([]byte(text), &r.streamSpec); err != nil {
		return err
	}
	r.told = make([]int64, r.Events)
	if err := r.open(); err != nil {
		return err
	}
	reg, err := r.handle()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { r.informer.RunWithContext(ctx) })
	<-r.informer.HasSyncedChecker().Done()
	<-reg.HasSyncedChecker().Done()
	if fills(r.Kind) {
		cancel()
		running.Wait()
		return r.db.Close()
	}
	// what the sync leaves to be done is not measured, and nothing says when it is over
	time.Sleep(500 * time.Millisecond)
	report, err := r.measure()
	if err != nil {
		return err
	}
	return measured.Tell(report)
}

// open makes the informer.
func (r *streamReader) open() error {
	cfg := &rest.Config{Host: r.Host, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: protoType, AcceptContentTypes: protoType + ",application/json"}}
	if r.Kind != streamStock {
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
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if r.Kind == streamStock {
		r.informer = cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers)
		return nil
	}
	if r.db, err = boltstore.Open(r.DB, r.options()); err != nil {
		return err
	}
	r.kept, err = informer.NewSharedIndexInformer(r.db, lw, &corev1.Pod{}, informer.Options{Indexers: indexers})
	r.informer = r.kept
	return err
}

// options are those of the file. Scale shortens what is done from time to time.
func (r *streamReader) options() boltstore.Options {
	o := boltstore.Options{Window: r.Window, ObjectMemory: objectMemory()}
	tuning.SetFile(&o, tuning.File{CompactRatio: -1})
	if r.Scale > 0 {
		o.FlushInterval = 5 * time.Second / time.Duration(r.Scale)
		tuning.SetFile(&o, tuning.File{BookmarkInterval: 10 * time.Minute / time.Duration(r.Scale)})
	}
	if r.Packed {
		o.Compression = boltstore.CompressionZstd
	}
	return o
}

// handle adds the handlers, and returns the first one.
func (r *streamReader) handle() (cache.ResourceEventHandlerRegistration, error) {
	switch r.Kind {
	case streamDurable, streamFillDurable:
		return r.handleDurably("bench", false, r.note)
	case streamDurableOld:
		return r.handleDurably("bench", true, r.note)
	case streamDurable3, streamFillDurable3:
		for _, name := range []string{"second", "third"} {
			if _, err := r.handleDurably(name, false, func(any) {}); err != nil {
				return nil, err
			}
		}
		return r.handleDurably("bench", false, r.note)
	}
	return r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, obj any) {
		sameObject(old, obj)
		r.note(obj)
	}})
}

// handleDurably adds a durable handler. old: it looks at the object of before, too.
func (r *streamReader) handleDurably(name string, old bool, note func(obj any)) (
	cache.ResourceEventHandlerRegistration, error,
) {
	return r.kept.AddDurableHandler(name, informer.DurableHandlerFunc(func(_ context.Context, e informer.Event) error {
		if e.Object == nil { // a Reset
			return nil
		}
		if old && e.Old != nil {
			sameObject(e.Old, e.Object)
		}
		note(e.Object)
		return nil
	}), informer.DurableOptions{})
}

// sameObject looks at both objects of an update.
func sameObject(old, obj any) {
	if old.(*corev1.Pod).UID != obj.(*corev1.Pod).UID {
		panic("another object")
	}
}

// note notes when an event was told.
func (r *streamReader) note(obj any) {
	rv, err := strconv.Atoi(obj.(*corev1.Pod).ResourceVersion)
	if err != nil || rv <= firstRV || rv > firstRV+r.Events {
		return
	}
	r.told[rv-firstRV-1] = time.Now().UnixNano()
	n := r.count.Add(1)
	if r.durable() && rv == firstRV+r.Events || !r.durable() && n == int64(r.Events) {
		close(r.done)
	}
}

func (r *streamReader) durable() bool { return filling(r.Kind) != streamFill }

// drained waits until all pods have been told in their last state. Of a durable handler, which
// is not told each change, nothing signals that.
func (r *streamReader) drained() {
	<-r.done
	for r.durable() {
		if !slices.ContainsFunc(r.kept.Lags(), func(l informer.Lag) bool { return l.Pending > 0 }) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// measure says that the reader is ready, and measures until all events have been told.
func (r *streamReader) measure() (report streamReport, err error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stopProfile, err := measured.Profile(r.Profile)
	if err != nil {
		return report, err
	}
	wrote, cpu := written(), cpuTime()
	if err := measured.Tell(struct{}{}); err != nil { // ready
		return report, err
	}
	if r.Scale > 0 {
		for r.informer.LastSyncResourceVersion() != strconv.Itoa(firstRV+r.Events) {
			time.Sleep(10 * time.Millisecond) // nothing is told of bookmarks
		}
		time.Sleep(r.Settle) // what is written later counts, too, and nothing says that it was the last
		return streamReport{Written: written() - wrote}, nil
	}
	r.drained()
	report = streamReport{Processor: cpuTime() - cpu, Told: r.told, Anon: measured.Resident().Anon}
	stopProfile()
	runtime.ReadMemStats(&after)
	report.Allocated = after.TotalAlloc - before.TotalAlloc
	if err := measured.HeapProfile(r.Profile); err != nil {
		return report, err
	}
	time.Sleep(r.Settle) // likewise
	report.Written = written() - wrote
	if r.kept != nil {
		report.Commits, err = r.commits()
	}
	return report, err
}

// commits counts the commits of the events by the journal's times.
func (r *streamReader) commits() (n int, err error) {
	last, first := r.kept.Store().State().Seq, uint64(0)
	for seq, commit := uint64(1), (time.Time{}); seq <= last; { // of one or more blocks
		entries, err := r.kept.GetIndexer().(*boltstore.Claimed).Feed.ReadJournal(seq)
		if err != nil {
			return 0, err
		}
		first = cmp.Or(first, entries[0].Seq)
		if at := entries[0].Time; !at.Equal(commit) {
			commit = at
			n++
		}
		seq = entries[len(entries)-1].Seq + 1
	}
	// The oldest blocks may have been trimmed.
	return int(float64(n) * float64(r.Events) / float64(last-first+1)), nil
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
