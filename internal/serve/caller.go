package serve

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/transport"
)

// caller is the sender of a request.
type caller struct {
	same   bool                      // this user: nothing is reviewed
	nobody bool                      // has no credentials, and gets what is public
	user   authenticationv1.UserInfo // of others
	token  string                    // is passed on; "" of others means that they are impersonated
	gate   gate                      // the gate that let the caller in

	waiting *places // of the address, for requests that wait for the server
}

// name is the caller's in places.
func (c *caller) name() string {
	if c.same {
		return ""
	}
	return c.user.Username
}

type callerKey struct{}

func callerOf(r *http.Request) *caller {
	c, ok := r.Context().Value(callerKey{}).(*caller)
	if !ok {
		panic("serve: a request without a caller") // the chain sets it
	}
	return c
}

func withCaller(r *http.Request, c *caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// gate finds out who calls. Its error is the answer to the caller.
type gate func(r *http.Request) (*caller, *apierrors.StatusError)

// thisUser is the gate of a socket that only this user can connect to.
func thisUser(*http.Request) (*caller, *apierrors.StatusError) { return &caller{same: true}, nil }

// holderOf is the gate for callers with a token of this process.
func holderOf(token string) gate {
	return func(r *http.Request) (*caller, *apierrors.StatusError) {
		if given := bearer(r); given == "" || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			return nil, unauthorized("give the token of the kubeconfig that kubewake has written")
		}
		return &caller{same: true}, nil
	}
}

// known is the gate for callers that the real server knows, by certificates of a CA or by
// tokens.
func (l *Link) known(certs *certificates) gate {
	return func(r *http.Request) (*caller, *apierrors.StatusError) {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			if err := certs.verify(r.TLS.PeerCertificates); err != nil {
				return nil, unauthorized(fmt.Sprintf("the client certificate is not valid any more: %v", err))
			}
			return certified(r.TLS.PeerCertificates[0])
		}
		token := bearer(r)
		switch {
		case token == "":
			return nil, unauthorized("neither a client certificate nor a token was given")
		case !certs.o.Tokens:
			return nil, unauthorized("tokens are not accepted here, only client certificates")
		}
		user, err := l.authenticate(r.Context(), token)
		if err != nil {
			return nil, err
		}
		return &caller{user: user, token: token}, nil
	}
}

// certified is the user that a certificate names, as at an API server.
func certified(cert *x509.Certificate) (*caller, *apierrors.StatusError) {
	if cert.Subject.CommonName == "" {
		return nil, unauthorized("the client certificate has no common name")
	}
	for _, name := range append([]string{cert.Subject.CommonName}, cert.Subject.Organization...) {
		if !fitsHeader(name) {
			return nil, unauthorized(fmt.Sprintf("the client certificate has a name that no request can pass on "+
				"as it is: %q", name))
		}
	}
	return &caller{user: authenticationv1.UserInfo{Username: cert.Subject.CommonName,
		Groups: cert.Subject.Organization}}, nil
}

// fitsHeader says whether a header passes a text on as it is. HTTP/1.1 drops spaces at both
// ends: the server would take the user for another one, or for this process.
func fitsHeader(text string) bool {
	return httpguts.ValidHeaderFieldValue(text) && strings.Trim(text, " \t") == text
}

// bearer is the token of a request, "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// tokenProtocol begins the protocol of a WebSocket that is a token.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

// takeToken makes a header of the token among the protocols of a WebSocket, since a browser
// sends no header. As at an API server there is one token, and another protocol, which
// the answer names.
func takeToken(r *http.Request) {
	const name = "Sec-Websocket-Protocol"
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return
	}
	var tokens, others []string
	for protocol := range strings.SplitSeq(strings.Join(r.Header.Values(name), ","), ",") {
		protocol = strings.TrimSpace(protocol)
		if token, ok := strings.CutPrefix(protocol, tokenProtocol); ok {
			tokens = append(tokens, token)
		} else if protocol != "" {
			others = append(others, protocol)
		}
	}
	if len(tokens) == 0 {
		return
	}
	r.Header.Del(name)
	if len(others) > 0 {
		r.Header.Set(name, strings.Join(others, ","))
	}
	token, err := base64.RawURLEncoding.DecodeString(tokens[0])
	if err == nil && len(tokens) == 1 && len(others) > 0 && r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+string(token))
	}
}

func unauthorized(why string) *apierrors.StatusError {
	return apierrors.NewUnauthorized(fmt.Sprintf("Unauthorized: %s", why))
}

// impersonates says whether a request asks to count as somebody else's.
func impersonates(h http.Header) bool {
	for name := range h {
		if isImpersonation(name) {
			return true
		}
	}
	return false
}

func isImpersonation(name string) bool {
	return len(name) >= len("Impersonate-") && strings.EqualFold(name[:len("Impersonate-")], "Impersonate-")
}

// changes is the name of an Impersonate- header with a value that the server may see as another
// one, "" if there is none.
func changes(h http.Header) string {
	for name, values := range h {
		if isImpersonation(name) && slices.ContainsFunc(values, func(v string) bool { return !fitsHeader(v) }) {
			return name
		}
	}
	return ""
}

// keepNamed empties a Connection header of the names of others, which a proxy would remove: the
// server must get the request that is judged here. An API server looks for Upgrade only.
func keepNamed(h http.Header) {
	upgrade := httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade")
	h.Del("Connection")
	if upgrade {
		h.Set("Connection", "Upgrade")
	}
}

// impersonating sends requests as the caller, with the rights of rt to do so. To a service
// account without groups a server would add those of its namespace, which the certificate
// does not name.
func (c *caller) impersonating(rt http.RoundTripper) http.RoundTripper {
	groups := c.user.Groups
	if len(groups) == 0 && strings.HasPrefix(c.user.Username, "system:serviceaccount:") {
		groups = []string{authenticated}
	}
	extra := map[string][]string{}
	for k, v := range c.user.Extra {
		extra[k] = v
	}
	return transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: c.user.Username, UID: c.user.UID, Groups: groups, Extra: extra,
	}, rt)
}
