package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/websocket"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// mostFrame is the size of an event, in bytes, from which on its message has several frames.
// A client that does not read keeps no more of it in memory.
const mostFrame = 64 << 10

// isWebSocket says whether a request asks for a WebSocket by the rules of an API server, which
// answers others as if they did not ask.
func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && r.Header.Get("Connection") != "" // see keepNamed
}

// inMessages says whether a request is a watch that the file can answer over WebSocket: one in
// JSON.
func inMessages(r *http.Request) bool {
	return isWebSocket(r) && r.Method == http.MethodGet && r.ProtoMajor == 1 &&
		kubeapi.ParsePath(r.URL.Path).Verb(r.Method, r.URL.Query()) == "watch" &&
		!strings.Contains(strings.ToLower(r.Header.Get("Accept")), kubeapi.MediaProto)
}

// ofAnotherOrigin says whether a browser sends a request for a page from elsewhere. An API
// server does not look at this. A token is known to the page itself, but a client
// certificate is the browser's, whatever the page.
func ofAnotherOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	from, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(strings.TrimSuffix(from.Host, ":443"), strings.TrimSuffix(r.Host, ":443"))
}

// serveFile lets the file answer.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, otherwise http.Handler) {
	if !inMessages(r) {
		s.file.ServeFile(w, r, otherwise)
		return
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	m := &messages{ResponseWriter: w, s: s, r: r, ctx: ctx, end: end}
	if otherwise != nil {
		otherwise = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.onward.ServeHTTP(w, r) })
	}
	defer m.close()
	s.file.ServeFile(m, r.WithContext(ctx), otherwise)
	if m.ws != nil {
		_ = m.ws.Close() // in order; it fails if the client left
	}
}

// messages makes a WebSocket of a watch, once it has begun, and a message of each line.
type messages struct {
	http.ResponseWriter
	s     *Server
	r     *http.Request
	ctx   context.Context
	end   context.CancelFunc // of ctx, when the client ends
	conn  *messageConn       // nil until the watch has begun
	in    *bufio.Reader
	ws    *websocket.Conn // nil if the client was refused
	event []byte          // what was not sent yet
	part  bool            // of the event was sent
}

// WriteHeader implements http.ResponseWriter.
func (m *messages) WriteHeader(code int) {
	if code != http.StatusOK {
		m.ResponseWriter.WriteHeader(code)
		return
	}
	conn, buf, err := http.NewResponseController(m.ResponseWriter).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the connection is gone
	}
	m.conn, m.in = &messageConn{conn, m.s.limits.Stall}, buf.Reader
	// The client may take nothing when the watch ends.
	context.AfterFunc(m.ctx, func() { time.AfterFunc(m.s.inOrder, m.close) })
	begun := make(chan *websocket.Conn, 1)
	go func() {
		defer m.end()
		defer close(begun)
		// As at an API server there is an Origin, and at most one protocol, whatever its name.
		websocket.Handler(func(ws *websocket.Conn) {
			begun <- ws
			_, _ = io.Copy(io.Discard, ws) // until the client ends
		}).ServeHTTP(m, m.r)
	}()
	m.ws = <-begun
}

// Hijack is for the package websocket.
func (m *messages) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return m.conn, bufio.NewReadWriter(m.in, bufio.NewWriter(m.conn)), nil
}

// Write implements io.Writer.
func (m *messages) Write(b []byte) (int, error) {
	switch {
	case m.conn == nil:
		return m.ResponseWriter.Write(b)
	case m.ws == nil:
		return 0, net.ErrClosed
	}
	frames := make([]byte, 0, len(m.event)+len(b)+64)
	for line := range bytes.Lines(b) {
		m.event = append(m.event, line...)
		if whole := line[len(line)-1] == '\n'; whole || len(m.event) >= mostFrame {
			frames = m.frame(frames, whole)
		}
	}
	m.event = bytes.Clone(m.event) // it keeps no room while the client is slow
	if _, err := m.conn.Write(frames); err != nil {
		m.end()
		return 0, err
	}
	return len(b), nil
}

// frame appends the event's next part as a frame, which is the last one if the event is whole.
func (m *messages) frame(to []byte, whole bool) []byte {
	kind := byte(websocket.TextFrame)
	if m.part {
		kind = websocket.ContinuationFrame
	}
	if whole {
		kind |= 1 << 7
	}
	switch size := len(m.event); {
	case size < 126:
		to = append(to, kind, byte(size))
	case size < 1<<16:
		to = binary.BigEndian.AppendUint16(append(to, kind, 126), uint16(size))
	default:
		to = binary.BigEndian.AppendUint64(append(to, kind, 127), uint64(size))
	}
	to = append(to, m.event...)
	m.event, m.part = m.event[:0], !whole
	return to
}

// close ends the connection.
func (m *messages) close() {
	if m.conn != nil {
		_ = m.conn.Conn.Close() // it may have ended
	}
}

// messageConn is a connection whose client takes each piece in time, or loses it. A Write is of
// whole frames: those of events, of answers to pings and of the end do not mix.
type messageConn struct {
	net.Conn
	stall time.Duration
}

// Write implements io.Writer.
func (c *messageConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn. The client's end must not come before the server's: messages
// closes the connection.
func (c *messageConn) Close() error { return nil }
