package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/panics"
	"golang.org/x/net/netutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Options are the options of Serve. The zero value is good.
type Options struct {
	// Sources returns the state of each source that the program keeps up to date, by
	// name. Set it so that `kubewake status` shows what the program's informers are
	// doing. It may be called at any time, concurrently.
	Sources func() map[string]string
}

// limits bound the resources that clients can use.
type limits struct {
	conns  int           // connections at a time; others wait to be accepted
	header int           // bytes of a request
	read   time.Duration // to send a request
	write  time.Duration // to accept each piece of an answer
}

// A header may be larger than one that kubewake serve accepts and passes on to the API:
// if a connection ended, so would all its watches.
var defaultLimits = limits{conns: 16, header: 128 << 10, read: 5 * time.Second, write: 10 * time.Second}

const trailerError = "Kubewake-Error"

type server struct {
	file
	opts     Options
	limits   limits
	http     *http.Server
	spooling sync.Mutex // one snapshot at a time: each takes the file's size on disk

	closing context.CancelFunc
	mu      sync.Mutex
	closed  bool           // wg does not grow any more
	wg      sync.WaitGroup // requests under way; mu is held over Add once the server serves
}

// Serve serves the file's socket until the Closer is closed. Close it before the DB. If
// the socket cannot be made, the error says why, and the DB works on.
func Serve(db *boltstore.DB, o Options) (io.Closer, error) {
	return serve(db, o, defaultLimits)
}

func serve(db *boltstore.DB, o Options, l limits) (*server, error) {
	sock, err := listen(db.Path())
	if err != nil {
		return nil, fmt.Errorf("live: the socket of %s cannot be made: %w", db.Path(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{file: file{db}, opts: o, limits: l, closing: cancel}
	mux := http.NewServeMux()
	for path, answer := range map[string]func(*http.Request, *stream) error{
		"/v1/status": s.status, "/v1/objects": s.objects, "/v1/at": s.objects, "/v1/index": s.index, "/v1/history": s.history, "/v1/snapshot": s.snapshot,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { s.answer(ctx, w, r, answer) })
	}
	// The API's paths are answered as they are: a mux would redirect some.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, apiPath+"/") {
			s.api(ctx, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
	s.http = &http.Server{
		Handler: s.bounded(handler), MaxHeaderBytes: l.header,
		Protocols: protocols(), HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			// A suspended client would keep its connection from others.
			SendPingTimeout: 3 * l.write, PingTimeout: l.write,
		},
		// ReadTimeout would end long answers.
		ReadHeaderTimeout: l.read, IdleTimeout: l.read,
		ErrorLog: panics.Logger(func(err error) { db.Logger().Error(err, "A request to the file's socket failed") }),
	}
	s.wg.Go(func() { _ = s.http.Serve(netutil.LimitListener(sock, l.conns)) }) // until it is closed
	return s, nil
}

// Close ends the server and its connections, and waits for requests under way.
func (s *server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closing()
	err := s.http.Close()
	s.wg.Wait()
	return err
}

// begin says whether a request may still be answered. If so, the caller calls wg.Done
// after it.
func (s *server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Add(1)
	}
	return !s.closed
}

// bounded refuses requests with a body. After next it bounds the time in which the client
// must take the rest of the answer.
func (s *server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
		} else {
			http.Error(w, "a request has no body", http.StatusRequestEntityTooLarge)
			_ = c.SetReadDeadline(time.Now()) // net/http would wait for the body
		}
		// It fails only on a connection that is gone.
		_ = c.SetWriteDeadline(time.Now().Add(s.limits.write))
	})
}

// stream is an answer. An error after its first byte goes into the trailer.
type stream struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	limit time.Duration
	begun bool
}

// Write sends a piece. A client that does not take it in time loses its
// connection.
func (a *stream) Write(p []byte) (int, error) {
	a.begun = true
	if err := a.c.SetWriteDeadline(time.Now().Add(a.limit)); err != nil {
		return 0, err
	}
	return a.w.Write(p)
}

func (s *server) answer(closing context.Context, w http.ResponseWriter, r *http.Request, fn func(*http.Request, *stream) error) {
	if !s.begin() {
		http.Error(w, "the server is closed", http.StatusServiceUnavailable)
		return
	}
	defer s.wg.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	w.Header().Set("Trailer", trailerError)
	a := &stream{w: w, c: http.NewResponseController(w), limit: s.limits.write}
	err := s.atPath(r)
	if err == nil {
		err = fn(r.WithContext(ctx), a)
	}
	switch {
	case err == nil:
	case errors.Is(err, boltstore.ErrMoved) && !a.begun:
		http.Error(w, err.Error(), http.StatusConflict)
	case a.begun:
		w.Header().Set(trailerError, err.Error())
	case errors.Is(err, ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, ErrUnknown):
		http.Error(w, err.Error(), http.StatusGone)
	case errors.Is(err, ErrSecret):
		http.Error(w, err.Error(), http.StatusForbidden)
	case errors.Is(err, errBusy):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// atPath returns an error if another file is at the path now, since the client asks for
// that file. If there is no file at the path, it returns nil.
func (s *server) atPath(r *http.Request) error {
	if r.URL.Path == "/v1/status" { // the status says it itself
		return nil
	}
	err := s.db.AtPath()
	if _, serr := os.Stat(s.db.Path()); errors.Is(serr, fs.ErrNotExist) {
		return nil
	}
	return err
}

var errBusy = errors.New("a snapshot is being taken for someone else; try again")

func (s *server) status(r *http.Request, a *stream) error {
	st, err := s.Status(r.Context())
	if err != nil {
		return err
	}
	st.Owner = &Owner{PID: os.Getpid()}
	if err := s.db.Err(); err != nil && !errors.Is(err, boltstore.ErrMoved) {
		st.Owner.Error = err.Error()
	}
	if err := s.db.AtPath(); err != nil {
		st.Owner.Moved = err.Error()
	}
	if s.opts.Sources != nil {
		st.Owner.Sources = s.opts.Sources()
	}
	return json.NewEncoder(a).Encode(st)
}

// query parses a request. It names the source by its ID.
func (s *server) query(r *http.Request) (Query, error) {
	v := r.URL.Query()
	q := Query{
		Key: v.Get("key"), Namespace: v.Get("namespace"), Index: v.Get("index"), Value: v.Get("value"),
		Sorted: v.Get("sorted") == "true", Secrets: v.Get("secrets") == "true",
	}
	q.At.ResourceVersion = v.Get("version")
	if at := v.Get("time"); at != "" {
		var err error
		if q.At.Time, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return q, err
		}
	}
	states, err := s.db.Sources()
	if err != nil {
		return q, err
	}
	for _, st := range states {
		switch v.Get("source") {
		case st.Source.ID():
			q.Source = st.Source
			return q, nil
		case st.Source.Resource: // the source's meta cannot be read
			return q, fmt.Errorf("source %s: %s", st.Source.Resource, st.Degraded)
		}
	}
	return q, fmt.Errorf("source %q: %w", v.Get("source"), ErrNotFound)
}

func (s *server) objects(r *http.Request, a *stream) error {
	q, err := s.query(r)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(a)
	return s.Objects(r.Context(), q, func(u *unstructured.Unstructured) error { return enc.Encode(u.Object) })
}

func (s *server) index(r *http.Request, a *stream) error {
	q, err := s.query(r)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(a)
	return s.Index(r.Context(), q, func(v IndexValue) error { return enc.Encode(sent(v)) })
}

func (s *server) history(r *http.Request, a *stream) error {
	q, err := s.query(r)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(a)
	return s.History(r.Context(), q, func(v Version) error { return enc.Encode(v) })
}

func (s *server) snapshot(_ *http.Request, a *stream) error {
	if !s.spooling.TryLock() {
		return errBusy
	}
	defer s.spooling.Unlock()
	// The copy may take longer than the client waits for the first byte.
	a.begun = true
	if err := a.c.Flush(); err != nil {
		return err
	}
	snap, err := s.db.Snapshot()
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(a, struct{ io.Reader }{snap}, make([]byte, 64<<10))
	return errors.Join(err, snap.Close())
}
