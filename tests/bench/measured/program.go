package measured

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Cache holds a program's pods.
type Cache struct {
	// Began and Opened are the times before and after the file was opened. Both are zero
	// if there is no file.
	Began, Opened time.Time
	// Has says whether a pod is there, by its key.
	Has func(key string) (bool, error)
	// List calls a function with each pod of a namespace, or with all if that is "".
	List func(namespace string, pod func(metav1.Object)) error
	// Loaded says whether the objects are in memory. It is nil if that does not matter.
	Loaded func() bool
	// Handle adds a handler, before Run.
	Handle func(cache.ResourceEventHandler) error
	// Run keeps the cache until the context ends.
	Run func(context.Context)
	// Synced is closed when the cache has synced.
	Synced <-chan struct{}
	// Size is the file's size in bytes, and Close closes the file. Both are nil if there
	// is no file.
	Size  func() int64
	Close func() error
}

// CacheOf returns the cache of an informer that has no file.
func CacheOf(inf cache.SharedIndexInformer) *Cache {
	return &Cache{
		Has: func(key string) (bool, error) {
			_, ok, err := inf.GetIndexer().GetByKey(key)
			return ok, err
		},
		List: func(namespace string, pod func(metav1.Object)) error {
			each := func(obj any) { pod(obj.(metav1.Object)) }
			if namespace == "" {
				return cache.ListAll(inf.GetIndexer(), labels.Everything(), each)
			}
			return cache.ListAllByNamespace(inf.GetIndexer(), namespace, labels.Everything(), each)
		},
		Handle: func(h cache.ResourceEventHandler) error {
			_, err := inf.AddEventHandler(h)
			return err
		},
		Run:    inf.RunWithContext,
		Synced: inf.HasSyncedChecker().Done(),
	}
}

// Program is a measured program.
type Program struct {
	Spec
	Wire        *Wire
	Samples     *Sampler
	stopProfile func()
}

// Start reads the spec and begins to measure.
func Start() (*Program, error) {
	p := &Program{Wire: &Wire{}}
	if err := json.Unmarshal([]byte(os.Getenv(SpecEnv)), &p.Spec); err != nil {
		return nil, err
	}
	var err error
	p.stopProfile, err = Profile(p.Profile)
	p.Samples = StartSampler()
	return p, err
}

// Config returns a client's configuration, whose traffic is counted.
func (p *Program) Config() *rest.Config {
	cfg := &rest.Config{
		Host: p.Host, BearerToken: p.Token, TLSClientConfig: rest.TLSClientConfig{CAData: p.CA},
		UserAgent: "bench/" + string(p.Kind),
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
	}
	if !p.Limited {
		cfg.QPS = -1
	}
	p.Wire.Attach(cfg)
	return cfg
}

// Run does what the spec says with the cache. The process must exit when it has returned:
// anything that Run has not closed is left as after a crash.
func (p *Program) Run(c *Cache) error {
	var r Report
	if !c.Opened.IsZero() && p.Mode == Restart {
		if err := p.readKey(c); err != nil {
			return err
		}
		r.Open, r.FirstRead, r.Read = c.Opened.Sub(c.Began), time.Since(c.Opened), time.Since(p.Started)
	}
	h := &handler{s: p.Spec, replayed: make(chan struct{}), changed: make(chan struct{}), marked: map[string]bool{}}
	if err := c.Handle(h); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	<-c.Synced
	r.Synced = time.Since(p.Started)
	if r.Read == 0 {
		if err := p.readKey(c); err != nil {
			return err
		}
		r.Read = time.Since(p.Started)
	}
	<-h.replayed
	r.Told = h.told.Sub(p.Started)
	if c.Size != nil {
		r.FileSize = c.Size()
	}
	if p.Mode == Reading {
		if err := c.load(); err != nil {
			return err
		}
		var err error
		if r.Reads, err = c.read(); err != nil {
			return err
		}
	}
	if p.Mode != Live {
		p.stopProfile()
	}
	if p.Mode != Fill && p.Mode != Reading {
		time.Sleep(Settle)
	}
	before := p.Wire.Read()
	r.Traffic, r.Memory = before, p.Samples.Read()
	if err := HeapProfile(p.Profile); err != nil {
		return err
	}
	p.Samples.Reset()
	h.reset()
	used := usage()
	if err := Tell(r); err != nil {
		return err
	}
	switch p.Mode {
	case Fill, First:
		cancel()
		running.Wait()
		if c.Close != nil {
			return c.Close()
		}
	case Live:
		<-h.changed
		p.stopProfile()
		time.Sleep(Settle)
		l, spent := h.report(), usage()
		l.Processor, l.Allocated = spent.processor-used.processor, spent.allocated-used.allocated
		l.Expired, l.Watching = p.Wire.Watching()
		l.Traffic, l.Memory = p.Wire.Read().Since(before), p.Samples.Read()
		if err := Tell(l); err != nil {
			return err
		}
		// The parent decides what comes next.
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	return nil
}

// readKey reads one pod.
func (p *Program) readKey(c *Cache) error {
	ok, err := c.Has(p.Key)
	if err == nil && !ok {
		err = fmt.Errorf("pod %s is not there", p.Key)
	}
	return err
}

// Profile starts a CPU profile, if the prefix of its file is not empty.
func Profile(prefix string) (stop func(), err error) {
	if prefix == "" {
		return func() {}, nil
	}
	f, err := os.Create(prefix + ".cpu.prof")
	if err != nil {
		return nil, err
	}
	return pprof.StopCPUProfile, pprof.StartCPUProfile(f)
}

// HeapProfile writes a profile of live and of allocated memory.
func HeapProfile(prefix string) error {
	if prefix == "" {
		return nil
	}
	f, err := os.Create(prefix + ".heap.prof")
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
