package apiserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// auditPolicy records every request except the server's own to itself.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  users: ["system:apiserver"]
- level: Metadata
`

// The stages of a request, in their order. A watch is in StageStarted until it ends;
// requests other than watches go from StageReceived to StageComplete.
const (
	StageReceived = "RequestReceived"
	StageStarted  = "ResponseStarted"
	StageComplete = "ResponseComplete"
)

// Request is what the server knows about a request that was sent to it.
type Request struct {
	Verb      string // get, list, watch, create, …
	URI       string // path and query
	User      string
	UserAgent string
	Stage     string    // how far it has come; the last stage may be written after the client has its answer
	Code      int       // of the answer; 0 in StageReceived
	Time      time.Time // when the server received it, in whole microseconds
}

// FullRead tells whether the request read a source as a whole: a list of more than one
// object, or a watch that begins with the current state. A list with limit=1, a list that
// selects a single name and a watch from a version are not full reads.
func (r Request) FullRead() bool {
	u, err := url.Parse(r.URI)
	if err != nil {
		return false
	}
	q := u.Query()
	switch r.Verb {
	case "list":
		return q.Get("limit") != "1" && !strings.HasPrefix(q.Get("fieldSelector"), "metadata.name=")
	case "watch":
		rv := q.Get("resourceVersion")
		return q.Get("sendInitialEvents") == "true" || rv == "" || rv == "0"
	}
	return false
}

// Requests are in the order in which the server received them.
type Requests []Request

// UserAgent returns the requests whose user agent starts with prefix.
func (rs Requests) UserAgent(prefix string) Requests {
	return rs.filter(func(r Request) bool { return strings.HasPrefix(r.UserAgent, prefix) })
}

// Path returns the requests for the given path, with any query.
func (rs Requests) Path(path string) Requests {
	return rs.filter(func(r Request) bool {
		p, _, _ := strings.Cut(r.URI, "?")
		return p == path
	})
}

// FullReads returns the requests that are a [Request.FullRead].
func (rs Requests) FullReads() Requests { return rs.filter(Request.FullRead) }

func (rs Requests) filter(keep func(Request) bool) Requests {
	return slices.DeleteFunc(slices.Clone(rs), func(r Request) bool { return !keep(r) })
}

// Requests returns the requests that the server received at or after since, from any
// user. A request whose answer has begun to arrive is always among them.
func (s *Server) Requests(since time.Time) (Requests, error) {
	f, err := os.Open(s.path(auditFile))
	if errors.Is(err, os.ErrNotExist) && !s.opts.NoAudit {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAudit(f, since.Truncate(time.Microsecond))
}

// readAudit merges the stages of each request. A last line that is not
// complete is left out.
func readAudit(r io.Reader, since time.Time) (Requests, error) {
	type event struct {
		AuditID                  string
		Stage                    string
		RequestURI               string
		Verb                     string
		User                     struct{ Username string }
		UserAgent                string
		ResponseStatus           struct{ Code int }
		RequestReceivedTimestamp time.Time
	}
	var out Requests
	at := map[string]int{}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		if e.RequestReceivedTimestamp.Before(since) {
			continue
		}
		i, known := at[e.AuditID]
		if !known {
			i = len(out)
			at[e.AuditID] = i
			out = append(out, Request{})
		}
		out[i] = Request{
			Verb: e.Verb, URI: e.RequestURI, User: e.User.Username, UserAgent: e.UserAgent,
			Stage: e.Stage, Code: e.ResponseStatus.Code, Time: e.RequestReceivedTimestamp,
		}
	}
	slices.SortStableFunc(out, func(a, b Request) int { return a.Time.Compare(b.Time) })
	return out, nil
}
