package reflector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// What a server serves of an object may change without a write, and so without a
// new version: with the defaults or the conversion of a custom resource, or with
// a server of another release. A relist compares versions only under the sign
// that it knows from the last one. Under another sign, or none, it compares
// content.

// servedForm returns the sign of the form in which the server serves the source's
// objects, "" where it cannot be learned.
func (s *Source) servedForm(ctx context.Context) (string, error) {
	if s.o.Server == "" { // not a client whose requests we can make
		return "", nil
	}
	p := &probe{form: true}
	if err := intercept(ctx, s.raw, p); err != nil {
		return "", err
	}
	return p.sign, p.err
}

// thenForm notes the sign once everything has been read: before, it would be asked
// for as often as a list is refused or breaks off.
func (l *lister) thenForm(read func(context.Context) fifo.Pages) func(context.Context) fifo.Pages {
	return func(ctx context.Context) fifo.Pages {
		pages := read(ctx)
		return func(r *boltstore.Relist) (string, string, error) {
			rv, newest, err := pages(r)
			if err == nil {
				form, unknown := l.s.servedForm(ctx)
				if unknown != nil {
					form = ""
				}
				r.ServedAs(form)
			}
			return rv, newest, err
		}
	}
}

// servedForm asks for the sign, with the credentials of req, once for all sources
// that wait for it.
func (t *transport) servedForm(req *http.Request) (string, error) {
	server, _, err := splitPath(req.URL.Path)
	if err != nil {
		return "", err
	}
	src, err := sourceOf(req.URL)
	if err != nil {
		return "", err
	}
	path := "/openapi/v3/apis/" + src.Group + "/" + src.Version
	if src.Group == "" {
		path = "/openapi/v3/api/" + src.Version
	}
	before, key := t.formed.begun.Load(), req.URL.Host+server+path
	select {
	case t.formed.turn <- struct{}{}:
		defer func() { <-t.formed.turn }()
	case <-req.Context().Done():
		return "", req.Context().Err()
	}
	if f, ok := t.formed.of[key]; ok && f.n > before {
		return f.sign, nil // it was asked for while we waited
	}
	n := t.formed.begun.Add(1)
	sign, err := t.askForm(req, server, path)
	if err == nil {
		t.formed.of[key] = form{sign, n}
	}
	return sign, err
}

// formed is what the servers of one config said of the forms that they serve, as
// asked is.
type formed struct {
	begun atomic.Uint64 // counts the questions
	turn  chan struct{} // to ask, and to touch of
	of    map[string]form
}

// form is that of a group version.
type form struct {
	sign string // "": the server does not tell it
	n    uint64 // number of the question
}

// askForm asks for the server's version, and for the schema of a group version
// under a hash that none has: the answer, which has no body, names the one that
// it has.
func (t *transport) askForm(req *http.Request, server, path string) (string, error) {
	var version struct {
		GitVersion, GitCommit, BuildDate string
	}
	body, _, err := t.askAt(req, server+"/version", "")
	if err != nil || json.Unmarshal(body, &version) != nil || version.GitVersion == "" {
		return "", err
	}
	_, hash, err := t.askAt(req, server+path, "hash=0")
	if err != nil || hash == "" {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", version, hash))
	return hex.EncodeToString(sum[:8]), nil
}

// askAt gets what is at the path, and the tag that it has. Both are empty, without
// an error, where the server refuses it or has nothing there.
func (t *transport) askAt(req *http.Request, path, query string) (body []byte, tag string, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(req.Context(), probeKey{}, nil), askPatience)
	defer cancel()
	get := req.Clone(ctx)
	get.URL.Path, get.URL.RawPath, get.URL.RawQuery = path, "", query
	get.Header.Set("Accept", "application/json")
	resp, err := t.gate.roundTrip(get, t.next.RoundTrip)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500 && code != http.StatusNotImplemented:
		return nil, "", fmt.Errorf("reflector: ask for the form of objects: %s", resp.Status)
	case code >= 400:
		return nil, "", nil
	}
	if query == "" {
		body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	}
	return body, resp.Header.Get("ETag"), err
}
