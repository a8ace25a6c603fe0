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
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Client reads a file through the socket of its owner.
type Client struct {
	db   string
	http *http.Client
}

var _ Reader = (*Client)(nil)

// Dial connects to the owner of the file at path. It fails if no process
// serves the file's socket.
func Dial(path string) (*Client, error) {
	sock, err := SocketPath(path)
	if err != nil {
		return nil, err
	}
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, path, sock) }
	conn, err := connect(context.Background(), "", "")
	if beside := path + ".sock"; err != nil && len(beside) <= longest {
		// In the owner's container the file may have a shorter path.
		sock = beside
		if c, again := connect(context.Background(), "", ""); again == nil {
			conn, err = c, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("live: the owner of %s cannot be asked: %w", path, err)
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	return &Client{path, &http.Client{Transport: &http.Transport{
		DialContext: connect, DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: 30 * time.Second,
	}}}, nil
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
	uid, pid, err := peer(c.(*net.UnixConn))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		return nil, errors.Join(err, c.Close())
	case known && uid != owner && uid != 0:
		return nil, errors.Join(fmt.Errorf("process %d, which serves %s, is not of the file's owner", pid, sock), c.Close())
	}
	return c, nil
}

// Close implements Reader.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// get asks the owner, and calls fn with the answer.
func (c *Client) get(ctx context.Context, path string, q url.Values, fn func(io.Reader) error) (err error) {
	defer func() {
		var own callers
		switch {
		case errors.As(err, &own):
			err = own.error
		case err != nil:
			err = fmt.Errorf("live: from the owner of %s: %w", c.db, err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://kubewake/v1/"+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error // the URL in its text is useless
		if errors.As(err, &u) {
			err = u.Err
		}
		if u != nil && u.Timeout() {
			err = fmt.Errorf("it does not answer; is it stopped or too busy, or do %d other commands read through it, such as get -w? (%w)", defaultLimits.conns, err)
		}
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err != nil {
			return err
		}
		a := &answered{resp.StatusCode, strings.TrimSpace(string(text))}
		if a.text == "404 page not found" {
			a = &answered{http.StatusNotImplemented, "it is of a version of kubewake that cannot answer this; take a snapshot of the file, and read that"}
		}
		return a
	}
	if err := fn(resp.Body); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // the trailer comes after the body
		return err
	}
	if msg := resp.Trailer.Get(trailerError); msg != "" {
		return &answered{http.StatusInternalServerError, msg}
	}
	return nil
}

// callers is an error of what takes the answer.
type callers struct{ error }

func ofCaller(err error) error {
	if err != nil {
		return callers{err}
	}
	return nil
}

// callersWriter returns the errors of a caller's writer.
type callersWriter struct{ io.Writer }

// Write implements io.Writer.
func (w callersWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	return n, ofCaller(err)
}

// answered is an error that the owner sent.
type answered struct {
	status int
	text   string
}

func (e *answered) Error() string { return e.text }

// Is says whether the owner's error is one of the package's.
func (e *answered) Is(target error) bool {
	return target == ErrNotFound && e.status == http.StatusNotFound ||
		target == ErrUnknown && e.status == http.StatusGone ||
		target == ErrSecret && e.status == http.StatusForbidden
}

func (q Query) values() url.Values {
	v := url.Values{"source": {q.Source.ID()}}
	at := ""
	if !q.At.Time.IsZero() {
		at = q.At.Time.Format(time.RFC3339Nano)
	}
	for name, value := range map[string]string{"key": q.Key, "namespace": q.Namespace, "index": q.Index, "value": q.Value, "version": q.At.ResourceVersion, "time": at} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Secrets {
		v.Set("secrets", "true")
	}
	if q.Sorted {
		v.Set("sorted", "true")
	}
	return v
}

// Status implements Reader.
func (c *Client) Status(ctx context.Context) (st Status, err error) {
	err = c.get(ctx, "status", nil, func(r io.Reader) error { return json.NewDecoder(r).Decode(&st) })
	st.File = c.db
	return st, err
}

// Objects implements Reader.
func (c *Client) Objects(ctx context.Context, q Query, fn func(*unstructured.Unstructured) error) error {
	path := "objects"
	if !q.At.IsZero() {
		path = "at" // unknown to owners that would show the present object
	}
	return c.lines(ctx, path, q, func(line json.RawMessage) error {
		var content map[string]any
		if err := utiljson.Unmarshal(line, &content); err != nil {
			return err
		}
		return ofCaller(fn(&unstructured.Unstructured{Object: content}))
	})
}

// Index implements Reader.
func (c *Client) Index(ctx context.Context, q Query, fn func(IndexValue) error) error {
	return c.lines(ctx, "index", q, func(line json.RawMessage) error {
		var v sentValue
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		return ofCaller(fn(v.value()))
	})
}

// History implements Reader.
func (c *Client) History(ctx context.Context, q Query, fn func(Version) error) error {
	return c.lines(ctx, "history", q, func(line json.RawMessage) error {
		var v Version
		if err := utiljson.Unmarshal(line, &v); err != nil {
			return err
		}
		return ofCaller(fn(v))
	})
}

func (c *Client) lines(ctx context.Context, path string, q Query, fn func(json.RawMessage) error) error {
	return c.get(ctx, path, q.values(), func(r io.Reader) error {
		for dec := json.NewDecoder(r); ; {
			var line json.RawMessage
			if err := dec.Decode(&line); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if err := fn(line); err != nil {
				return err
			}
		}
	})
}

// Snapshot implements Reader. The copy is whole only if the error is nil.
func (c *Client) Snapshot(ctx context.Context, w io.Writer) error {
	return c.get(ctx, "snapshot", nil, func(r io.Reader) error {
		_, err := io.Copy(callersWriter{w}, r)
		return err
	})
}
