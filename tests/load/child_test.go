//go:build linux

package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/bench/measured"
)

// specEnv holds the spec, as JSON, of the program that is killed: this test binary.
const specEnv = "KUBEWAKE_LOAD_SPEC"

type spec struct {
	Host, DB, Keys, Table string
	Sizes                 sizes
	Seed                  uint64
	Life                  int
	JournalBytes          int64
	Readers               int
	ReadEvery             time.Duration // of each reader
	Stall, StallPlain     time.Duration // at most, of a durable and of a plain handler that stalls
}

func (s spec) options() boltstore.Options {
	return boltstore.Options{Keyset: seal.File(s.Keys), JournalBytes: s.JournalBytes,
		ObjectMemory: int64(s.Sizes[small]) * 8 << 10} // twice what the small source takes
}

// The program's orders, one at a time.
const (
	doSnapshot = "snapshot" // copied to a path
	doCompact  = "compact"
	doCalm     = "calm" // nothing stalls and fails any more
	doStatus   = "status"
	doCompare  = "compare" // what readers are given, once nothing changes
	doEnd      = "end"     // in order
)

type order struct{ Do, Path string }

// message is a message of the program.
type message struct {
	Ready  bool   // the file is open, and the informers run
	Done   string // a finished order, with its error and duration
	Err    string
	Took   time.Duration
	Status *status
}

// status is the program's report each second, about the time since the last one.
type status struct {
	Anon       int64
	Goroutines int
	Size       int64
	Plain      [sources]uint64 // entries that the slowest plain handler has not been told
	Keys       int             // that durable handlers have not acknowledged
	Oldest     time.Duration   // how long one of them has been pending, at most
	Failing    int
	InMemory   [sources]bool
	Reads      map[string][]time.Duration
	Objects    uint64 // in the file, in bytes
	Live       int64  // memory after a collection, if it was asked for
}

func TestMain(m *testing.M) {
	for env, run := range map[string]func(string) error{specEnv: runChild, tenantEnv: runTenant} {
		s := os.Getenv(env)
		if s == "" {
			continue
		}
		if err := run(s); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is the program.
type child struct {
	spec  spec
	table *table
	db    *boltstore.DB
	infs  [sources]*informer.Informer
	calm  chan struct{}
	seeds atomic.Uint64

	queues      []*informer.DurableQueue[string]
	reconcilers sync.WaitGroup

	seen     [sources]seen
	inMemory [sources]atomic.Bool
	readers  sync.RWMutex // held by each read
	// comparing says that the memory is that of doCompare, which is not reported.
	comparing atomic.Bool
	reading   []atomic.Int64 // when each reader's present read began, in ns; 0: it does not read

	mu      sync.Mutex // guards what follows
	out     *json.Encoder
	latency map[string][]time.Duration
}

func (c *child) random() *rand.Rand {
	return rand.New(rand.NewPCG(c.spec.Seed+uint64(c.spec.Life), c.seeds.Add(1)))
}

func (c *child) isCalm() bool {
	select {
	case <-c.calm:
		return true
	default:
		return false
	}
}

// endQueues ends the reconcilers, which read the file until their queues are empty.
func (c *child) endQueues() {
	for _, q := range c.queues {
		q.ShutDown()
	}
	c.reconcilers.Wait()
}

func (c *child) say(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(m); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
	}
}

func runChild(text string) error {
	c := &child{calm: make(chan struct{}), out: json.NewEncoder(os.Stdout), latency: map[string][]time.Duration{}}
	go c.dump()
	var err error
	if err = json.Unmarshal([]byte(text), &c.spec); err != nil {
		return err
	}
	if c.table, err = openTable(c.spec.Table, c.spec.Sizes); err != nil {
		return err
	}
	if c.db, err = boltstore.Open(c.spec.DB, c.spec.options()); err != nil {
		return err
	}
	if aside := c.db.AsidePaths(); len(aside) > 0 {
		c.table.fault("the file was set aside: %v", aside)
	}
	if c.db.KeysDue() {
		c.table.fault("the file does not have the keyset's new key")
	}
	cfg := reflector.WrapConfig(&rest.Config{Host: c.spec.Host, QPS: -1, UserAgent: "kubewake/load",
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"}})
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	for src := range sources {
		lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), resources[src], "", fields.Everything())
		if c.infs[src], err = informer.NewSharedIndexInformer(c.db, lw, example(src),
			informer.Options{Indexers: indexers()}); err != nil {
			return err
		}
	}
	for h, of := range handlers() {
		if err := c.table.belief(h, c.spec.Life).register(c.infs[of.src], c); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	for _, inf := range c.infs {
		running.Go(func() { inf.RunWithContext(ctx) })
	}
	for src, n := range c.spec.Sizes {
		c.seen[src] = make(seen, n)
	}
	c.reading = make([]atomic.Int64, c.spec.Readers)
	for i := range c.spec.Readers {
		go c.read(i)
	}
	go c.watch()
	go c.report()
	c.say(message{Ready: true})
	return c.obey(func() error {
		c.readers.Lock() // they have ended
		c.endQueues()
		cancel()
		running.Wait()
		return c.db.Close()
	})
}

// live is how much memory is in use, in bytes.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// dumped is behind the goroutines in the standard error, which SIGUSR1 asks for.
const dumped = "these were all goroutines"

func (c *child) dump() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	for range asked {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) // there is nowhere else to say that it failed
		for _, inf := range c.infs {
			if inf == nil {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, at entry %d\n", inf.State(), inf.Store().State().Seq)
			for _, l := range inf.Lags() {
				if l.Entries > 0 || l.Pending > 0 {
					fmt.Fprintf(os.Stderr, "%+v\n", l)
				}
			}
		}
		fmt.Fprintln(os.Stderr, dumped)
	}
}

// obey follows orders until it must end.
func (c *child) obey(end func() error) error {
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := in.Decode(&o); err != nil {
			return err
		}
		began := time.Now()
		var err error
		switch o.Do {
		case doSnapshot:
			err = c.snapshot(o.Path)
		case doCompact:
			_, err = c.db.Compact(context.Background(), nil)
		case doCalm:
			if !c.isCalm() {
				close(c.calm)
			}
		case doStatus:
			s := c.status(measured.Resident().Anon)
			s.Live = live()
			c.say(message{Status: s})
		case doCompare:
			// A list of all objects takes memory in proportion, which no other reader asks for.
			c.comparing.Store(true)
			c.contents()
			c.compare()
			debug.FreeOSMemory()
			c.comparing.Store(false)
		case doEnd:
			err = end()
		}
		m := message{Done: o.Do, Took: time.Since(began)}
		if err != nil {
			m.Err = err.Error()
		}
		c.say(m)
		if o.Do == doEnd {
			return err
		}
	}
}

func (c *child) snapshot(path string) error {
	s, err := c.db.Snapshot()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	_, err = io.Copy(f, s)
	return errors.Join(err, f.Close(), s.Close())
}

// watch keeps in the table how far the program has come.
func (c *child) watch() {
	for range time.Tick(20 * time.Millisecond) {
		for src, inf := range c.infs {
			st := inf.Store().State()
			c.inMemory[src].Store(st.InMemory)
			c.table.words[committed+src].Store(versionOf(st.ResourceVersion))
			if lags := inf.Lags(); len(lags) > 0 && lags[0].Handler == "" {
				c.table.words[untold+src].Store(lags[0].Entries)
			}
		}
	}
}

// versionOf is 0 before the first list.
func versionOf(rv string) uint64 {
	v, _ := strconv.ParseUint(rv, 10, 64) // "" is 0
	return v
}

// report sends the status each second.
func (c *child) report() {
	var peak int64
	said := time.Now()
	for range time.Tick(50 * time.Millisecond) {
		if !c.comparing.Load() {
			peak = max(peak, measured.Resident().Anon)
		}
		if time.Since(said) < time.Second {
			continue
		}
		said = time.Now()
		c.say(message{Status: c.status(peak)})
		c.stuck()
		peak = 0
	}
}

// status takes stock.
func (c *child) status(peak int64) *status {
	s := &status{Anon: peak, Goroutines: runtime.NumGoroutine(), Size: c.db.Size()}
	for src, inf := range c.infs {
		st := inf.Store().State()
		s.InMemory[src] = st.InMemory
		s.Objects += st.Bytes
		for _, l := range inf.Lags() {
			if l.Handler == "" {
				s.Plain[src] = l.Entries
				continue
			}
			s.Keys += int(l.Pending)
			s.Oldest = max(s.Oldest, l.Age)
			s.Failing += l.Failing
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Reads, c.latency = c.latency, map[string][]time.Duration{}
	return s
}
