package kubesim

import (
	"fmt"
	"strings"
)

// Cost counts a client's requests, by kind, and the bytes of the answers.
type Cost struct {
	Questions int // lists that brought at most one object
	FullReads int // pages of lists, and watches that began with the state
	Watches   int // that began with a version
	Others    int // gets, discovery and writes
	// Forms are questions for the served form: the server's version, the hash of a
	// schema, the definition of a custom resource.
	Forms int
	// Bytes of all answers' bodies as sent, those still open included.
	Bytes int64
}

// CostOf adds up what requests have cost so far.
func CostOf(records []RequestRecord) (c Cost) {
	for _, r := range records {
		switch {
		case r.FullRead():
			c.FullReads++
		case r.Verb == "watch":
			c.Watches++
		case r.Verb == "list":
			c.Questions++
		case r.Path == "/version" || strings.HasPrefix(r.Path, "/openapi/v3") || strings.HasPrefix(r.Path, definitions):
			c.Forms++
		default:
			c.Others++
		}
		c.Bytes += r.BodyBytes
	}
	return c
}

// Since returns the cost after before, of the same requests.
func (c Cost) Since(before Cost) Cost {
	return Cost{c.Questions - before.Questions, c.FullReads - before.FullReads, c.Watches - before.Watches,
		c.Others - before.Others, c.Forms - before.Forms, c.Bytes - before.Bytes}
}

// Exceeds says which number of the cost is above the bound, "" if none is. A cost far
// below its bound is never a failure.
func (c Cost) Exceeds(most Cost) string {
	for _, n := range []struct {
		what      string
		got, most int64
	}{
		{"questions", int64(c.Questions), int64(most.Questions)},
		{"full reads", int64(c.FullReads), int64(most.FullReads)},
		{"watches", int64(c.Watches), int64(most.Watches)},
		{"others", int64(c.Others), int64(most.Others)},
		{"questions for the form", int64(c.Forms), int64(most.Forms)},
		{"bytes", c.Bytes, most.Bytes},
	} {
		if n.got > n.most {
			return fmt.Sprintf("%d %s, at most %d: %+v", n.got, n.what, n.most, c)
		}
	}
	return ""
}
