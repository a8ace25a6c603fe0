package reflector

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The caller's list and watch functions, or the list options of a factory, may change
// parameters of a request. The meaning of its answer depends on some of these.

// bookmarkTimeout is longer than any watch that must bring a bookmark at its end, and
// shorter than the watches of a Reflector.
const bookmarkTimeout = time.Minute

// asAsked returns the request of a list or watch with the parameters that the source has
// asked for, as far as they matter. A watch that begins anywhere (no version, or 0)
// misses deletes. An older list looks as if the server had been restored. A bookmark
// comes at the end of a watch.
func asAsked(req *http.Request) *http.Request {
	p, _ := req.Context().Value(pulseKey{}).(*pulse)
	if p == nil || req.Method != http.MethodGet {
		return req
	}
	if _, err := sourceOf(req.URL); err != nil {
		return req // the caller's function also asks for something else
	}
	q := req.URL.Query()
	o := p.asked
	changed := set(q, "sendInitialEvents", "")
	if q.Get("continue") == "" { // otherwise the token has the version
		if is := q.Get("resourceVersion"); is == "" || is == "0" { // any other version comes from a caller that translates versions
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
		return req
	}
	req = req.Clone(req.Context())
	req.URL.RawQuery = q.Encode()
	return req
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
