package serve

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// asks bounds what the server is asked about tokens. Those that it does not accept have few
// places, by address, and each of these for a while: callers that it has accepted need none.
type asks struct {
	link      *Link
	strangers *places
	renewals  *places // by user
}

// askEvery is how long a token that is refused takes a place, which bounds their rate.
const askEvery = time.Second

func newAsks(l *Link, most Limits) *asks {
	return &asks{l, newPlaces(int64(max(most.Requests/4, 1))), newPlaces(int64(most.Requests))}
}

// around bounds the questions of a gate. A watch that looks again whether it may go on does
// not wait for a place: it passes the gate itself.
func (a *asks) around(g gate) gate {
	return func(r *http.Request) (*caller, *apierrors.StatusError) {
		end, ok := a.begin(r)
		if !ok {
			const why = "too many callers with tokens that are not known yet, please try again later"
			return nil, apierrors.NewTooManyRequests(why, 1)
		}
		accepted := false
		defer func() { end(accepted) }()
		c, err := g(r)
		if err == nil {
			c.gate, accepted = g, true
		}
		return c, err
	}
}

// begin says whether a request's token may be asked about, if that is needed.
func (a *asks) begin(r *http.Request) (end func(accepted bool), ok bool) {
	token := bearer(r)
	if token == "" || r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return func(bool) {}, true
	}
	key, err := questionOf(aboutToken(token))
	last, fresh := a.link.reviews.kept(key, a.link.reviews.clock.Now())
	switch user := last.user.Username; {
	case fresh, err != nil: // get has the error, too
		return func(bool) {}, true
	case user != "":
		return func(bool) { a.renewals.give(user, 1) }, a.renewals.take(user, 1)
	}
	from, began := network(r.RemoteAddr), time.Now()
	return func(accepted bool) {
		rest := askEvery - time.Since(began)
		if accepted {
			rest = 0
		}
		time.AfterFunc(rest, func() { a.strangers.give(from, 1) })
	}, a.strangers.take(from, 1)
}

// network is where a caller comes from: an address, or the /64 of IPv6, which a host has whole.
func network(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	at, err := netip.ParseAddr(host)
	if err != nil || at.Unmap().Is4() {
		return host
	}
	return netip.PrefixFrom(at.WithZone(""), 64).Masked().String()
}
