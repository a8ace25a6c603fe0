package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// File answers from a file.
type File interface {
	// ServeFile answers a read. If the file does not have the objects, it calls otherwise
	// before anything of an answer was sent. If otherwise is nil, it refuses.
	ServeFile(w http.ResponseWriter, r *http.Request, otherwise http.Handler)
}

// answer answers a request of a caller who was let in.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if isLong(r) {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(s.lasts, end)()
		r = r.WithContext(ctx)
	}
	s.route(w, r)
}

// breakOff breaks the connection off if the caller has left or the server closes: the caller
// was not refused, but could not be asked about.
func breakOff(r *http.Request) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

// route sends a request to where it is answered.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	c := callerOf(r)
	p := kubeapi.ParsePath(r.URL.Path)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	asSomebody := impersonates(r.Header)
	switch {
	case r.URL.Opaque != "": // "x:http://host/path" has no path here, and another one for the next server
		kubeapi.WriteStatus(w, apierrors.NewBadRequest("the target of the request is no path"))
	case strings.ContainsFunc(r.Header.Get("Upgrade"), func(c rune) bool { return c < ' ' || c > '~' }):
		kubeapi.WriteStatus(w, apierrors.NewBadRequest("no protocol has such a name (Upgrade header)"))
	case changes(r.Header) != "":
		kubeapi.WriteStatus(w, apierrors.NewBadRequest(changes(r.Header)+
			" begins or ends with a space, which would be lost on the way to the server"))
	case asSomebody && !c.same && c.token == "":
		refuse(w, "a caller with a client certificate is impersonated, and cannot impersonate somebody else "+
			"(Impersonate- headers)")
	case asSomebody && s.link == nil:
		refuse(w, "there is no link to the server, which would say what others may do (Impersonate- headers)")
	case asSomebody && c.same && s.link.as != "": // a header of the caller's would win over it
		refuse(w, fmt.Sprintf("this process itself impersonates %q (--as), so its callers cannot impersonate "+
			"somebody else (Impersonate- headers)", s.link.as))
	case isWebSocket(r) && !c.same && c.token == "" && ofAnotherOrigin(r):
		refuse(w, "a page of another origin cannot use the client certificate of its browser (Origin header)")
	case r.URL.Path == selfReviewPath && r.Method == http.MethodPost && !asSomebody:
		s.selfReview(w, r)
	case c.nobody, s.link == nil:
		s.file.ServeFile(w, r, nil)
	case !reads || asSomebody || upgrades(r):
		s.onward.ServeHTTP(w, r)
	case p.Resource != "":
		s.read(w, r, c, p)
	case isDiscovery(r.URL.Path, p):
		s.discovery(w, r)
	case isPlain(r.URL.Path):
		s.plain(w, r)
	default:
		s.onward.ServeHTTP(w, r)
	}
}

// read answers a read of objects.
func (s *Server) read(w http.ResponseWriter, r *http.Request, c *caller, p kubeapi.Path) {
	if !c.same {
		if p.Subresource != "" && p.Subresource != "status" || p.Resource == "watch" { // as old paths of watches begin
			s.onward.ServeHTTP(w, r) // the server authorises it
			return
		}
		if err := s.link.authorize(r, c, p); err != nil {
			breakOff(r)
			kubeapi.WriteStatus(w, err)
			return
		}
		if p.Verb(r.Method, r.URL.Query()) == "watch" {
			var end context.CancelFunc
			r, end = s.link.whileAllowed(r, c, p)
			defer end()
		}
	}
	s.file.ServeFile(w, r, s.onward)
}

func refuse(w http.ResponseWriter, why string) {
	kubeapi.WriteStatus(w, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(why)))
}

// isWebSocket says whether a request asks for a WebSocket by the rules of an API server, which
// answers others as if they did not ask.
func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && r.Header.Get("Connection") != "" // see keepNamed
}

// ofAnotherOrigin says whether a browser sends a request for a page from elsewhere. An API
// server does not look at this. A token is known to the page itself, but a client
// certificate is the browser's, whatever the page.
func ofAnotherOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	from, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(strings.TrimSuffix(from.Host, ":443"), strings.TrimSuffix(r.Host, ":443"))
}
