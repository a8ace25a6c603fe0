package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// specEnv holds the spec, as JSON, of a program that is to be measured.
const specEnv = "KUBEWAKE_BENCH_SPEC"

// settle is how long after the sync the memory is read.
const settle = 3 * time.Second

// kind of informer that a program has.
type kind string

const (
	kubewake kind = "kubewake"
	stock    kind = "client-go"
	idle     kind = "none" // a client that has asked for one pod
)

// mode is what a program does.
type mode string

const (
	fill    mode = "fill"    // syncs, and closes its file in order
	restart mode = "restart" // syncs, settles, and ends as in a crash
	live    mode = "live"    // syncs, then waits for changes
)

// spec tells a program what to do.
type spec struct {
	Kind    kind
	Mode    mode
	Host    string
	Token   string
	CA      []byte
	DB      string
	Key     string // a pod, to be read first
	Pods    int
	Changes int    // in live mode: how many pods will be marked
	Deletes int    // and how many deleted
	Mark    string // with this
	Started time.Time
	Limited bool // to client-go's default rate of requests
	Types   bool // ten informers over ten small types, in place of one over pods
	Confirm reflector.Confirm
	Decoded bool   // kubewake leaves all of each page to the client to decode
	Profile string // prefix of the files to write profiles to
}

// report is what a program says once it has synced. Durations are from the
// start of the process, but for Open and FirstRead.
type report struct {
	Open      time.Duration // Open took so long
	FirstRead time.Duration // from there to the first object read from the file
	Read      time.Duration
	Told      time.Duration // the handler has been told of all pods
	Synced    time.Duration
	Traffic   traffic
	Memory    memory
	FileSize  int64
	Processor time.Duration // of the whole life; noted by the parent
}

// liveReport is what a program in live mode says once it has been told of all
// changes. All is since its report.
type liveReport struct {
	Told, LastCall         time.Time
	Expired, Watching      time.Time // told that the version is too old, and watching again
	Processor              time.Duration
	Allocated              int64 // bytes
	Adds, Updates, Deletes int
	Traffic                traffic
	Memory                 memory
}

// cached is an informer and what it lives on.
type cached struct {
	cache.SharedIndexInformer
	db     *boltstore.DB // nil for client-go's
	since  time.Time     // before Open
	opened time.Time     // after it
}

// child is a program that is measured.
func child(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	stopProfile, err := profile(s.Profile)
	if err != nil {
		return err
	}
	samples := startSampler()
	cfg := &rest.Config{
		Host: s.Host, BearerToken: s.Token, TLSClientConfig: rest.TLSClientConfig{CAData: s.CA}, UserAgent: "bench/" + string(s.Kind),
		ContentConfig: rest.ContentConfig{
			ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
	}
	if !s.Limited {
		cfg.QPS = -1
	}
	w := &wire{}
	w.attach(cfg)
	if s.Kind == kubewake {
		reflector.WrapConfig(cfg)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if s.Kind == idle {
		if _, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		time.Sleep(settle)
		return tell(report{Traffic: w.read(), Memory: samples.read()})
	}
	if s.Types {
		return s.types(client, w)
	}
	inf, err := s.informer(client)
	if err != nil {
		return err
	}
	var r report
	if s.Kind == kubewake && s.Mode == restart {
		if err := s.readKey(inf); err != nil {
			return err
		}
		r.Open, r.FirstRead, r.Read = inf.opened.Sub(inf.since), time.Since(inf.opened), time.Since(s.Started)
	}
	h := &handler{s: s, replayed: make(chan struct{}), changed: make(chan struct{}), marked: map[string]bool{}}
	if _, err := inf.AddEventHandler(h); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	<-inf.HasSyncedChecker().Done()
	r.Synced = time.Since(s.Started)
	if r.Read == 0 {
		if err := s.readKey(inf); err != nil {
			return err
		}
		r.Read = time.Since(s.Started)
	}
	<-h.replayed
	r.Told = h.told.Sub(s.Started)
	if inf.db != nil {
		r.FileSize = inf.db.Size()
	}
	if s.Mode != live {
		stopProfile()
	}
	if s.Mode != fill {
		time.Sleep(settle)
	}
	before := w.read()
	r.Traffic, r.Memory = before, samples.read()
	if err := heapProfile(s.Profile); err != nil {
		return err
	}
	samples.reset()
	h.reset()
	used := usage()
	if err := tell(r); err != nil {
		return err
	}
	switch s.Mode {
	case fill:
		cancel()
		running.Wait()
		return inf.db.Close()
	case live:
		<-h.changed
		stopProfile()
		time.Sleep(settle)
		l, spent := h.report(), usage()
		l.Processor, l.Allocated = spent.processor-used.processor, spent.allocated-used.allocated
		l.Expired, l.Watching = w.watching()
		l.Traffic, l.Memory = w.read().since(before), samples.read()
		if err := tell(l); err != nil {
			return err
		}
		// What comes next is the parent's to say.
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	return nil
}

func tell(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// readKey reads one pod.
func (s spec) readKey(inf *cached) error {
	_, ok, err := inf.GetIndexer().GetByKey(s.Key)
	if err == nil && !ok {
		err = fmt.Errorf("pod %s is not there", s.Key)
	}
	return err
}

// informer makes the one that the spec asks for, over all pods. The two list
// and watch with the same functions and have the same index.
func (s spec) informer(client kubernetes.Interface) (*cached, error) {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("").Watch(ctx, o)
		},
	}, client)
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	c := &cached{since: time.Now()}
	if s.Kind == stock {
		c.SharedIndexInformer = cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers)
		return c, nil
	}
	var err error
	if c.db, err = boltstore.Open(s.DB, boltstore.Options{ObjectMemory: objectMemory()}); err != nil {
		return nil, err
	}
	c.opened = time.Now()
	o := informer.Options{Indexers: indexers}
	o.Reflector.Confirm = s.Confirm
	if s.Decoded {
		o.Reflector.Compare = reflector.CompareDecoded
	}
	c.SharedIndexInformer, err = informer.NewSharedIndexInformer(c.db, lw, &corev1.Pod{}, o)
	return c, err
}
