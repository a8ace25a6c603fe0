package apifile

import (
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// Options configure a handler. The zero value serves everything but Secrets.
type Options struct {
	// Cluster is the name of the cluster whose sources are served. It is needed only if
	// one file has several; see boltstore.Source.
	Cluster string
	// Source, unless empty, is the ID of the only source that answers.
	Source string
	// Secrets serves Secrets, too.
	Secrets bool
	// WarnAfter is the age of data from which answers have a Warning header. 0 means five
	// minutes, below 0 never.
	WarnAfter time.Duration
	// Fresh is how long a get or list without a version waits for the server to confirm
	// the data, if an informer of this process keeps it up to date. A watch in place of a
	// list (sendInitialEvents) waits, too. If the confirmation does not come, a Warning
	// header says so. 0 does not wait.
	Fresh time.Duration
	// Otherwise answers requests for objects that the file does not have: types and
	// selections without a source, subresources, Secrets that are not served. nil refuses
	// them.
	Otherwise http.Handler `json:"-"`
	// Clock drives timeouts and bookmarks of watches. nil is the real clock.
	Clock clock.WithTicker `json:"-"`
	// Logger gets errors that clients see as 500. nil means the file's.
	Logger *klog.Logger `json:"-"`
}

// Header names of the age of data.
const (
	HeaderAge       = "Age"                // whole seconds
	HeaderConfirmed = "Kubewake-Confirmed" // RFC 3339, by the clock of the machine with the file
)

// New returns a handler that answers from db, which must stay open as long as the handler
// is used. The handler checks no rights: everyone who can reach it can read the file. It
// has no goroutines but those of requests. A watch ends once db is closed.
func New(db *boltstore.DB, o Options) http.Handler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.WarnAfter == 0 {
		o.WarnAfter = 5 * time.Minute
	}
	if o.Logger == nil {
		l := db.Logger()
		o.Logger = &l
	}
	return &handler{db: db, opts: o}
}

type handler struct {
	db   *boltstore.DB
	opts Options
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache, private")
	states, err := h.db.Sources()
	if err != nil {
		kubeapi.WriteStatus(w, unavailable(err, 1))
		return
	}
	if id := h.opts.Source; id != "" {
		states = slices.DeleteFunc(states, func(st boltstore.State) bool { return st.Source.ID() != id })
	}
	s := &storage{handler: h, kinds: h.kindsOf(states), header: w.Header(), newest: h.opts.Fresh > 0 &&
		wantsNewest(r.URL.Query()), part: kubeapi.Part{Of: &room}}
	defer s.part.Free()
	api := &kubeapi.Handler{
		Storage:    s,
		Clock:      h.opts.Clock,
		Version:    version,
		Aggregated: true,
		Otherwise:  h.opts.Otherwise,
		Failed: func(r *http.Request, err error) {
			h.opts.Logger.Error(err, "A request could not be answered from the file", "method", r.Method, "path",
				r.URL.Path, "file", h.db.Path())
		},
	}
	api.ServeHTTP(w, r)
}

// version does not claim to be a release of Kubernetes.
func version() apiversion.Info {
	return apiversion.Info{Major: "0", Minor: "0", GitVersion: "v0.0.0+kubewake", GoVersion: runtime.Version(),
		Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

// unavailable is for requests that another process may answer soon. With more seconds it
// is for objects that the file does not have.
func unavailable(err error, seconds int32) *apierrors.StatusError {
	st := apierrors.NewServiceUnavailable(textOf(err))
	st.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: seconds}
	return st
}

// textOf is the text of an error for a client, who does not know the package.
func textOf(err error) string { return strings.TrimPrefix(err.Error(), "boltstore: ") }

// age states the age of a source in the answer's header. unsure says why there may be
// newer data, nil if the request does not ask for the newest.
func (s *storage) age(st *boltstore.State, unsure error) {
	warn := ""
	s.header.Del("Warning")
	if age := st.ConfirmedAge; age != nil {
		s.header.Set(HeaderAge, strconv.FormatInt(int64(max(*age, 0)/time.Second), 10))
		if s.opts.WarnAfter > 0 && (*age > s.opts.WarnAfter || unsure != nil) {
			// kubectl prints equal ones once
			warn = "this is what the file says; the server confirmed it " + duration.ShortHumanDuration(max(*age,
				0)) + " ago"
		}
	} else if s.opts.WarnAfter > 0 {
		warn = "this is what the file says; it is not known how long ago the server confirmed it"
	}
	if !st.Confirmed.IsZero() {
		s.header.Set(HeaderConfirmed, st.Confirmed.UTC().Format(time.RFC3339))
	}
	if warn == "" {
		return
	}
	if unsure != nil {
		warn += "; " + brief(unsure)
	}
	if err := s.db.Err(); err != nil {
		warn += "; the file takes no changes: " + textOf(err)
	}
	if header, err := utilnet.NewWarningHeader(299, "-", strings.Join(strings.Fields(warn), " ")); err == nil {
		s.header.Set("Warning", header)
	}
}

// brief is the text of an error for a client, who may not be this user. kubectl prints equal
// warnings once, for several types.
func brief(err error) string {
	var b interface {
		error
		Brief() string
	}
	if errors.As(err, &b) {
		return b.Brief()
	}
	return err.Error()
}
