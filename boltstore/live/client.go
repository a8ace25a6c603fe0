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
	"strings"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

var (
	// ErrNotKept: the file does not have the objects that a request to the API asks for.
	ErrNotKept = errors.New("the file does not have it")
	// ErrNoOwner: no process answers for the file any more, or its file is not at the path any
	// more. Dial again, or open the file.
	ErrNoOwner = errors.New("the file's owner does not answer")
)

// silence is how long the owner may send nothing while it has requests.
const silence = 15 * time.Second

// Client asks the owner of a file. All requests share a connection. Its methods may be called
// concurrently.
type Client struct {
	db   string
	http *http.Transport
}

// Dial connects to the owner of the file at path. It fails if no process
// serves the file's socket.
func Dial(path string) (*Client, error) {
	sock, err := SocketPath(path)
	if err != nil {
		return nil, err
	}
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, path, sock) }
	conn, err := connect(context.Background(), "", "")
	if err != nil {
		return nil, fmt.Errorf("live: the owner of %s cannot be asked: %w", path, err)
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	c := &Client{path, &http.Transport{
		Protocols: protocols, DisableCompression: true, DialContext: connect,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: 64 << 10, // what a client that does not read leaves here: the least
			// A silent owner is asked by a ping. If it does not answer, it does not count
			// as an owner.
			SendPingTimeout: silence, PingTimeout: silence / 3,
		},
	}}
	return c, conn.Close()
}

// patience is how long the process that has a file open has to say who it is. It may be stopped,
// or its disk hang.
const patience = 5 * time.Second

// Ask is Dial, and asks the owner for the status. If it does not answer within five seconds, the
// error is context.DeadlineExceeded.
func Ask(path string) (*Client, Status, error) {
	c, err := Dial(path)
	if err != nil {
		return nil, Status{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := c.Status(ctx)
	if err == nil && st.Owner != nil && st.Owner.Moved != "" {
		if _, none := os.Stat(path); none == nil {
			err = fmt.Errorf("process %d serves the socket, but has another file open, "+
				"which was at this path before: %s", st.Owner.PID, st.Owner.Moved)
		}
	}
	if err != nil {
		return nil, Status{}, errors.Join(err, c.Close())
	}
	return c, st, nil
}

// connect trusts answers only from the file's owner and from root. If there is no file,
// it trusts this user and root: the file may have been removed while it is open.
func connect(ctx context.Context, db, sock string) (net.Conn, error) {
	owner, known := os.Geteuid(), true
	st, err := os.Stat(db)
	if err == nil {
		owner, known = ownerOf(st)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", sock)
	if err != nil {
		return nil, err
	}
	uid, err := peer(c.(*net.UnixConn))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		return nil, errors.Join(err, c.Close())
	case known && uid != owner && uid != 0:
		return nil, errors.Join(fmt.Errorf("the process that serves %s is not of the file's owner", sock), c.Close())
	}
	return c, nil
}

// Close closes the connection once it is idle.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Status is the state of the file, with the owner's report.
func (c *Client) Status(ctx context.Context) (st Status, err error) {
	err = c.get(ctx, statusPath, func(r io.Reader) error { return json.NewDecoder(r).Decode(&st) })
	st.File = c.db
	return st, err
}

// Snapshot writes a copy of the file as one commit left it. The copy is whole only if the error
// is nil.
func (c *Client) Snapshot(ctx context.Context, w io.Writer) error {
	return c.get(ctx, snapshotPath, func(r io.Reader) error {
		_, err := io.Copy(w, r)
		return err
	})
}

// get hands fn the answer to a request outside the API.
func (c *Client) get(ctx context.Context, path string, fn func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kubewake"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("it does not answer; is it stopped or too busy, "+
				"or do %d other commands read through it, such as get -w? (%w)", defaultLimits.conns, err)
		}
		return c.owners(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err != nil {
			return c.owners(err)
		}
		return c.owners(errors.New(strings.TrimSpace(string(text))))
	}
	return fn(answer{resp.Body, c})
}

// owners is an error of the owner, or on the way to it.
func (c *Client) owners(err error) error {
	return fmt.Errorf("live: from the owner of %s: %w", c.db, err)
}

// answer tells the owner's errors from those of the writer that takes the answer.
type answer struct {
	io.Reader
	c *Client
}

// Read implements io.Reader.
func (a answer) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // what a Reader returns
		err = a.c.owners(err)
	}
	return n, err
}

// API sends a request to the API on the file, with the options Cluster, Source, Secrets,
// WarnAfter and Fresh. The request has no body; its URL is that of a request to an API server, with any host.
// If otherwise is true and the file does not have the objects, the error is ErrNotKept; if it is
// false, the owner's refusal is the answer.
func (c *Client) API(r *http.Request, o apifile.Options, otherwise bool) (*http.Response, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	r = r.Clone(ctx)
	r.URL.Scheme, r.URL.Host, r.Host = "http", "kubewake", ""
	r.URL.RawPath, r.URL.Opaque = "", ""
	r.Body, r.ContentLength = nil, 0
	r.Header.Set(headerOptions, string(text))
	if r.Header.Del(headerNone); otherwise {
		r.Header.Set(headerNone, noneHere)
	}
	resp, err := c.http.RoundTrip(r)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoOwner, err)
	}
	switch resp.Header.Get(headerNone) {
	case "":
		return resp, nil
	case noneHere:
		return nil, errors.Join(ErrNotKept, resp.Body.Close())
	}
	return nil, errors.Join(fmt.Errorf("%w: its file is not the one at the path", ErrNoOwner), resp.Body.Close())
}
