package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// Own is a file that this process has open.
func Own(db *boltstore.DB, o apifile.Options) File { return &own{db, o} }

type own struct {
	db *boltstore.DB
	o  apifile.Options
}

// ServeFile implements File.
func (f *own) ServeFile(w http.ResponseWriter, r *http.Request, otherwise http.Handler) {
	o := f.o
	o.Otherwise = otherwise
	apifile.New(f.db, o).ServeHTTP(w, r)
}

// Shared is the file at a path, whichever process has it open. Its owner answers, if
// there is one. Otherwise it is read here, until another process takes it.
type Shared struct {
	path  string
	open  func() (*boltstore.DB, error) // for reading, giving way
	o     apifile.Options
	end   context.CancelFunc
	ended sync.WaitGroup

	mu       sync.Mutex
	now      *way
	failed   error
	at       time.Time // of failed
	closed   bool
	clusters []string // as last known
}

// way is the source of answers: either the file or its owner.
type way struct {
	db    *boltstore.DB
	owner *live.Client
}

const (
	lookEvery = time.Second     // at whether the file was taken
	askOwner  = 5 * time.Second // how long the owner has to say who it is
)

// NewShared returns the file at a path, which open opens for reading. Close it.
func NewShared(path string, open func() (*boltstore.DB, error), o apifile.Options) *Shared {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Shared{path: path, open: open, o: o, end: cancel}
	f.ended.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f.look()
			}
		}
	})
	return f
}

// look ends watches of a file that was taken, which do not notice it themselves.
func (f *Shared) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
}

// drop forgets a file that cannot be read any more. It needs mu.
func (f *Shared) drop() {
	if f.now != nil && f.now.db != nil && f.now.db.Err() != nil {
		_ = f.now.db.Close() // it was only read
		f.now = nil
	}
}

// forget forgets an owner that does not answer, or a file that cannot be read.
func (f *Shared) forget(w *way) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.now != w:
		return
	case w.db != nil:
		_ = w.db.Close() // it was only read
	default:
		_ = w.owner.Close() // others go on with its answers
	}
	f.now = nil
}

// Close closes the file.
func (f *Shared) Close() error {
	f.end()
	f.ended.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.now == nil {
		return nil
	}
	if f.now.owner != nil {
		return f.now.owner.Close()
	}
	return f.now.db.Close()
}

// Ready returns an error if nothing can answer for the file at the moment.
func (f *Shared) Ready() error {
	_, err := f.way()
	return err
}

func (f *Shared) way() (*way, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	switch {
	case f.closed:
		return nil, boltstore.ErrClosed
	case f.now != nil:
		return f.now, nil
	case f.failed != nil && time.Since(f.at) < lookEvery:
		return nil, f.failed
	}
	f.now, f.failed = f.find()
	f.at = time.Now()
	return f.now, f.failed
}

// find asks for an owner first: while there is one, the file cannot be opened.
func (f *Shared) find() (*way, error) {
	owner, st, noOwner := live.Ask(f.path)
	if noOwner == nil {
		f.clusters = clustersOf(st.Sources, f.o.Cluster)
		return &way{owner: owner}, nil
	}
	db, err := f.open()
	if errors.Is(err, boltstore.ErrLocked) {
		err = fmt.Errorf("%w; %w", err, noOwner)
	}
	if err != nil {
		return nil, err
	}
	w := &way{db: db}
	if uids, err := w.clusters(context.Background(), f.o.Cluster); err == nil {
		f.clusters = uids
	}
	return w, nil
}

// Clusters returns the UIDs of the clusters of the file's sources, none if the file does
// not know them. While the file cannot be read, they are the last known ones.
func (f *Shared) Clusters(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, askOwner)
	defer cancel()
	for range 3 { // the owner ends, and another one begins
		way, err := f.way()
		if err != nil {
			break
		}
		if uids, err := way.clusters(ctx, f.o.Cluster); err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.clusters = uids
			return uids
		}
		f.forget(way)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters
}

func (w *way) clusters(ctx context.Context, name string) ([]string, error) {
	if w.db != nil {
		states, err := w.db.Sources()
		return clustersOf(states, name), err
	}
	st, err := w.owner.Status(ctx)
	if err != nil {
		return nil, err
	}
	return clustersOf(st.Sources, name), nil
}

// ClustersOf returns the UIDs of the clusters of a name, none if the file does not know
// them.
func ClustersOf(db *boltstore.DB, name string) []string {
	states, err := db.Sources()
	if err != nil {
		return nil
	}
	return clustersOf(states, name)
}

// clustersOf returns the UIDs of sources of a cluster name. There are several if sources
// that are no longer mirrored came from another cluster.
func clustersOf(states []boltstore.State, name string) (uids []string) {
	for _, st := range states {
		if st.Source.Cluster == name && st.ClusterUID != "" && !slices.Contains(uids, st.ClusterUID) {
			uids = append(uids, st.ClusterUID)
		}
	}
	return uids
}

// ServeFile implements File.
func (f *Shared) ServeFile(w http.ResponseWriter, r *http.Request, otherwise http.Handler) {
	var err error
	for range 3 { // the owner ends, and another one begins
		var way *way
		if way, err = f.way(); err != nil {
			break
		}
		if way.db != nil {
			(&own{way.db, f.o}).ServeFile(w, r, otherwise)
			return
		}
		switch err = f.passToOwner(way.owner, w, r, otherwise != nil); {
		case err == nil:
			return
		case errors.Is(err, live.ErrNotKept):
			otherwise.ServeHTTP(w, r)
			return
		case !errors.Is(err, live.ErrNoOwner):
			panic(http.ErrAbortHandler) // the caller left
		}
		f.forget(way)
	}
	// a client does not know the package
	st := apierrors.NewServiceUnavailable(strings.TrimPrefix(err.Error(), "boltstore: "))
	st.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	kubeapi.WriteStatus(w, st)
}

// passToOwner passes a request to the owner. An error says that nothing of an answer was
// sent.
func (f *Shared) passToOwner(owner *live.Client, w http.ResponseWriter, r *http.Request, otherwise bool) (err error) {
	p := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header.Del("Authorization") // the owner has no use for it
			for _, name := range []string{"Connection", "Upgrade"} {
				p.Out.Header.Del(name) // HTTP/2 has none, and a file's answers are no streams
			}
			p.Out.Body, p.Out.ContentLength = nil, 0
		},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return owner.API(r, f.o, otherwise)
		}),
		FlushInterval: -1,
		BufferPool:    buffers(isLong(r)),
		ErrorHandler:  func(_ http.ResponseWriter, _ *http.Request, cause error) { err = cause },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	pass(&p, w, r)
	return err
}

// pass passes a request to a proxy. A watch that breaks off since the answering process
// was killed, or since this one ends, ends in order: its client goes on from the last event.
// In HTTP/2 client-go would make an event of the break, which kubectl prints. A watch that
// was not answered is no answer.
func pass(p *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	answered := false
	p.ModifyResponse = func(*http.Response) error {
		answered = true
		return nil
	}
	defer func() {
		broken := recover()
		watches := answered && kubeapi.ParsePath(r.URL.Path).Verb(r.Method, r.URL.Query()) == "watch"
		if broken != nil && (broken != http.ErrAbortHandler || !watches) { //nolint:errorlint // a panic's value
			panic(broken)
		}
	}()
	p.ServeHTTP(w, breaksOff(r))
}

// breaksOff makes a ReverseProxy panic if it cannot send an answer to its end, as it does
// in an http.Server. Without one it would return as if the answer were complete.
func breaksOff(r *http.Request) *http.Request {
	if r.Context().Value(http.ServerContextKey) != nil {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{}))
}

// buffers are for copying answers, 32 KiB each, or less if many wait.
type buffers bool

// Get implements httputil.BufferPool.
func (small buffers) Get() []byte {
	if small {
		return make([]byte, 4<<10)
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (buffers) Put([]byte) {}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
