package reflector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// The caller's list and watch functions, or the list options of a factory, may change
// parameters of a request. The meaning of its answer depends on some of these.

// bookmarkTimeout is longer than any watch that must bring a bookmark at its end, and
// shorter than the watches of a Reflector.
const bookmarkTimeout = time.Minute

// asAsked returns the request of a list or watch with the parameters that the source has
// asked for, as far as they matter. A watch that begins anywhere (no version, or 0)
// misses deletes. An older list looks as if the server had been restored. A bookmark
// comes at the end of a watch. The error says that the request chooses other objects than
// the source's.
func asAsked(req *http.Request) (*http.Request, error) {
	p, _ := req.Context().Value(pulseKey{}).(*pulse)
	if p == nil || req.Method != http.MethodGet {
		return req, nil
	}
	src, err := sourceOf(req.URL)
	if err != nil {
		return req, nil // the caller's function also asks for something else
	}
	if err := p.isOf(src); err != nil {
		return nil, err
	}
	q := req.URL.Query()
	o := p.asked
	changed := set(q, "sendInitialEvents", "")
	if q.Get("continue") == "" { // otherwise the token has the version
		// any other version comes from a caller that translates versions
		if is := q.Get("resourceVersion"); is == "" || is == "0" {
			changed = set(q, "resourceVersion", o.ResourceVersion) || changed
		}
		changed = set(q, "resourceVersionMatch", string(o.ResourceVersionMatch)) || changed
	}
	if asked := o.TimeoutSeconds; asked != nil && time.Duration(*asked)*time.Second < bookmarkTimeout {
		if is, err := strconv.ParseInt(q.Get("timeoutSeconds"), 10, 64); err != nil || is <= 0 || is > *asked {
			changed = set(q, "timeoutSeconds", strconv.FormatInt(*asked, 10)) || changed
		}
	}
	if !changed {
		return req, nil
	}
	req = req.Clone(req.Context())
	req.URL.RawQuery = q.Encode()
	return req, nil
}

// isOf fails if src has other selectors or another namespace than the source had when it
// was claimed. Its objects would get into the file under the source's name, and the next
// life would serve them.
func (p *pulse) isOf(src boltstore.Source) error {
	if src.Group != p.of.Group || src.Version != p.of.Version || src.Resource != p.of.Resource {
		return nil // the caller's function also asks for something else
	}
	src.Cluster, src.Form = p.of.Cluster, p.of.Form
	if p.asked.FieldSelector != "" { // the question's
		src.FieldSelector = p.of.FieldSelector
	}
	if src == p.of {
		return nil
	}
	return fmt.Errorf("%w: the informer is of %s, and the client asks for %s; make another informer for these objects",
		errOtherObjects, p.of, src)
}

var errOtherObjects = errors.New("reflector: the client's list options have changed")

// neverAlike says whether the client's watches are of the source's objects, as when the
// source was claimed. Then its lists have been of others from the beginning, and it gets
// what it asks for.
func (r *requests) neverAlike(ctx context.Context) bool {
	p := &probe{}
	if err := intercept(ctx, r.raw, p); err != nil {
		return false
	}
	src, err := sourceOf(p.url)
	r.unlike.Store(err == nil && (&pulse{of: r.source}).isOf(src) == nil)
	return r.unlike.Load()
}

// set sets a parameter, or removes it if value is "". It says whether the request has
// changed.
func set(q url.Values, of, value string) bool {
	switch {
	case q.Get(of) == value:
		return false
	case value == "":
		q.Del(of)
	default:
		q.Set(of, value)
	}
	return true
}

// stated is the timeout in seconds that the request states. It is the one asked for,
// unless the caller's function sets its own, as list options of a factory may.
func (p *pulse) stated(asked *int64) *int64 {
	if !p.seen.Load() {
		return asked
	}
	if s := p.timeout.Load(); s > 0 {
		return &s
	}
	return nil
}
