package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/panics"
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

type server struct {
	db      *boltstore.DB
	opts    Options
	limits  limits
	http    *http.Server
	copying chan struct{} // has room for one snapshot at a time: each takes the file's size on disk

	closing context.CancelFunc // ends the requests' contexts
	open    sync.RWMutex       // requests hold it; Close takes it once for all
	serving sync.WaitGroup
	once    sync.Once
}

// Serve serves the file's socket until the Closer is closed. Close it before the DB. If
// the socket cannot be made, the error says why, and the DB works on.
func Serve(db *boltstore.DB, o Options) (io.Closer, error) {
	return serve(db, o, defaultLimits)
}

func serve(db *boltstore.DB, o Options, l limits) (*server, error) {
	path, err := SocketPath(db.Path())
	var sock *socket
	if err == nil {
		sock, err = listenAt(path, true)
	}
	if err != nil {
		return nil, fmt.Errorf("live: the socket of %s cannot be made: %w", db.Path(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{db: db, opts: o, limits: l, closing: cancel, copying: make(chan struct{}, 1)}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.handle), MaxHeaderBytes: l.header, Protocols: protocols,
		BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			// A suspended client would keep its connection from others.
			SendPingTimeout: 3 * l.write, PingTimeout: l.write,
		},
		// ReadTimeout would end long answers.
		ReadHeaderTimeout: l.read, IdleTimeout: l.read,
		ErrorLog: panics.Logger(func(err error) { db.Logger().Error(err, "A request to the file's socket failed") }),
	}
	s.serving.Go(func() { _ = s.http.Serve(netutil.LimitListener(sock, l.conns)) }) // until it is closed
	return s, nil
}

// Close ends the server and its connections, and waits for requests under way.
func (s *server) Close() error {
	s.closing()
	err := s.http.Close()
	s.serving.Wait()
	s.once.Do(s.open.Lock)
	return err
}

// handle answers a request. At its end it bounds the time in which the client must take the
// rest of the answer. In HTTP/2 a client that does not read a part of the API holds up no other
// request, and its watch goes on from the file.
func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	if !s.open.TryRLock() {
		http.Error(w, "the server is closed", http.StatusServiceUnavailable)
		return
	}
	defer s.open.RUnlock()
	c := http.NewResponseController(w)
	// it fails only on a connection that is gone
	defer func() { _ = c.SetWriteDeadline(time.Now().Add(s.limits.write)) }()
	path := r.URL.Path
	if r.Header.Get(headerOptions) != "" {
		path = "" // Client.API may pass on anybody's request, and others have no other paths
	}
	if r.ProtoMajor == 1 || path == snapshotPath {
		w = timely{w, c, s.limits.write}
	}
	moved := s.moved()
	switch {
	case r.ContentLength != 0:
		http.Error(w, "a request has no body", http.StatusRequestEntityTooLarge)
		_ = c.SetReadDeadline(time.Now()) // net/http would wait for the body
	case path == statusPath: // it says itself that the file was moved
		s.status(w)
	case moved != nil:
		w.Header().Set(headerNone, noneMoved)
		http.Error(w, moved.Error(), http.StatusConflict)
	case path == snapshotPath:
		s.snapshot(w, r)
	default:
		s.api(w, r)
	}
}

// moved returns an error if another file is at the path now, since the client asks for
// that file. If there is no file at the path, it returns nil.
func (s *server) moved() error {
	err := s.db.AtPath()
	if _, serr := os.Stat(s.db.Path()); errors.Is(serr, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *server) status(w http.ResponseWriter) {
	st, err := StatusOf(s.db)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
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
	_ = json.NewEncoder(w).Encode(st) // the client left
}

// snapshot sends a copy of the file. It is broken off if an error comes after the first byte.
func (s *server) snapshot(w http.ResponseWriter, r *http.Request) {
	select {
	case s.copying <- struct{}{}:
		defer func() { <-s.copying }()
	case <-r.Context().Done():
		return
	}
	snap, err := s.db.Snapshot()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{snap}, make([]byte, 64<<10))
	if errors.Join(err, snap.Close()) != nil {
		panic(http.ErrAbortHandler)
	}
}

// api answers the Kubernetes API.
func (s *server) api(w http.ResponseWriter, r *http.Request) {
	var o apifile.Options
	if text := r.Header.Get(headerOptions); text != "" {
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			http.Error(w, headerOptions+": "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	if r.Header.Get(headerNone) == noneHere {
		o.Otherwise = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerNone, noneHere)
			w.WriteHeader(http.StatusNotFound)
		})
	}
	apifile.New(s.db, o).ServeHTTP(w, r)
}

// timely is an answer whose client must take each piece in time, or lose the connection, or the
// stream in HTTP/2. Between pieces a watch may be silent for any time.
type timely struct {
	http.ResponseWriter
	c     *http.ResponseController
	limit time.Duration
}

// Write implements io.Writer.
func (t timely) Write(p []byte) (int, error) {
	if err := t.c.SetWriteDeadline(time.Now().Add(t.limit)); err != nil {
		return 0, err
	}
	return t.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (t timely) Flush() {
	_ = t.c.SetWriteDeadline(time.Now().Add(t.limit)) // the next Write has the error
	_ = t.c.Flush()
}

// Unwrap is for http.ResponseController.
func (t timely) Unwrap() http.ResponseWriter { return t.ResponseWriter }
