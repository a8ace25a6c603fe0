package apifile

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

// wantsNewest says whether a request asks for the server's newest state: it has no
// version, and is not for a further page.
func wantsNewest(q url.Values) bool {
	return q.Get("resourceVersion") == "" && q.Get("continue") == ""
}

// freshen waits until the server has confirmed the source that answers a request. If it
// does not, the answer has a warning. A confirmation counts from here on: the file notes it
// later.
func (s *storage) freshen(ctx context.Context, src *source) {
	if !s.newest || !src.st.Synced {
		return
	}
	began := s.opts.Clock.Now()
	wait, cancel := context.WithTimeout(ctx, s.opts.Fresh)
	defer cancel()
	err := src.WaitForFresh(wait, 0)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the server did not confirm it within %s", s.opts.Fresh)
	}
	inUse := src.st.InUse // only DB.States has it
	src.st = src.State()
	src.st.InUse = inUse
	if err == nil {
		age := s.opts.Clock.Since(began)
		src.st.Confirmed, src.st.ConfirmedAge = began, &age
	}
	s.age(&src.st, err)
}
