package reflector

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestServerUnreachable: whatever keeps the program from the server, the objects stay,
// the state names the cause, requests follow client-go's backoff, and when the server can
// be reached again the missed changes are told without a full read.
func TestServerUnreachable(t *testing.T) {
	fails := func(err error) func(f *fixture) (mend func()) {
		return func(f *fixture) func() {
			broken := func(*http.Request) error { return err }
			f.breaks.Store(&broken)
			return func() { f.breaks.Store(nil) }
		}
	}
	answers := func(err *apierrors.StatusError) func(f *fixture) (mend func()) {
		return func(f *fixture) func() {
			on := f.refuse(err)
			on.Store(true)
			return func() { on.Store(false) }
		}
	}
	for name, tc := range map[string]struct {
		breaks func(f *fixture) (mend func())
		reason string // in the state
		tries  int64  // requests in an hour, at most
		bytes  int64  // that the answer to each has
	}{
		"name not found": {fails(&net.DNSError{Err: "no such host", Name: "api.example", IsNotFound: true}),
			"no such host", 260, 0},
		"name server down": {fails(&net.DNSError{Err: "i/o timeout", Name: "api.example", IsTimeout: true,
			IsTemporary: true}), "lookup api.example", 260, 0},
		"refused": {fails(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}),
			"connection refused", 260, 0},
		// The client itself tries these again, ten times, a second apart.
		"reset": {fails(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}), "connection reset", 2300,
			0},
		"cut short": {fails(io.ErrUnexpectedEOF), "eof", 2300, 0},
		"no route":  {fails(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}), "unreachable", 260, 0},
		"certificate expired": {fails(x509.CertificateInvalidError{Reason: x509.Expired,
			Detail: "current time is after 2026-01-01T00:00:00Z"}),
			"certificate has expired", 260, 0},
		"unknown authority": {fails(x509.UnknownAuthorityError{}), "unknown authority", 260, 0},
		// And these after the time that the answer asks for.
		"429": {answers(apierrors.NewTooManyRequests("busy", 30)), "busy", 160, 160},
		"504": {answers(apierrors.NewTimeoutError("etcd", 10)), "etcd", 450, 160},
		"503": {answers(apierrors.NewServiceUnavailable("no leader")), "no leader", 260, 140},
		"500": {answers(apierrors.NewInternalError(io.ErrUnexpectedEOF)), "internal", 260, 210},
	} {
		phase := PhaseOffline
		if strings.HasPrefix(name, "50") {
			phase = PhaseFailing
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
				f.reflect()
				after(time.Second)
				f.takeTold()
				mend := tc.breaks(f)
				f.sim.DropConnections()
				f.create("missed")
				f.delete("cm1")
				f.cost()
				f.tries.Store(0)
				after(time.Hour)
				tries, away := f.tries.Swap(0), f.cost()
				st := f.State()
				if n := len(f.store.ListKeys()); n != 5 || st.Phase != phase ||
					!strings.Contains(strings.ToLower(st.Reason), tc.reason) {
					t.Errorf("%d objects, %#v", n, st)
				}
				if age, ok := st.Age(time.Now()); !ok || age < time.Hour-time.Second {
					t.Errorf("confirmed %v ago, %v", age, ok)
				}
				if tries > tc.tries || 2*tries < tc.tries {
					t.Errorf("%d requests in an hour, not %d", tries, tc.tries)
				}
				most := kubesim.Cost{}
				if tc.bytes > 0 { // they come through
					most = kubesim.Cost{Questions: int(tc.tries), Bytes: tc.tries * tc.bytes}
				}
				if broken := away.Exceeds(most); broken != "" {
					t.Error("in an hour:", broken)
				}
				mend()
				after(6 * time.Minute) // Retry-After, within client-go's retries
				if told := f.takeTold(); told != "Added missed, Deleted cm1" || f.State().Phase != PhaseLive {
					t.Errorf("told %q, %s", told, f.State())
				}
				if n := f.State().Resumes; n > 3 {
					t.Errorf("%d resumes", n)
				}
				// A question, the watch that catches up, one to end it, and the
				// number of objects, once.
				f.costs("afterwards", kubesim.Cost{Questions: 5, Watches: 6, Others: 3, Bytes: 2500})
				if diff := f.differs(); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestRetryAfter: a busy server that says for how long gets no requests of any kind for
// that time.
func TestRetryAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		refused     func(*http.Request) bool
		busy, after kubesim.Cost
	}{
		"question": {func(r *http.Request) bool { return r.URL.Query().Get("limit") == "1" },
			kubesim.Cost{Questions: 46, Bytes: 8000},
			kubesim.Cost{Questions: 3, FullReads: 3, Watches: 4, Others: 4, Forms: 2, Bytes: 5000}},
		"watch": {isWatch,
			kubesim.Cost{Questions: 5, Watches: 46, Others: 5, Bytes: 11_000},
			kubesim.Cost{Questions: 2, FullReads: 3, Watches: 4, Others: 3, Forms: 2, Bytes: 4400}},
		"page": {func(r *http.Request) bool { return r.URL.Query().Get("limit") == "3" },
			kubesim.Cost{Questions: 48, Watches: 1, Others: 6, Forms: 8, Bytes: 11_000},
			kubesim.Cost{Questions: 3, FullReads: 3, Watches: 4, Others: 2, Bytes: 4200}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 8, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
				on := &atomic.Bool{}
				f.sim.FailNext(func(r *http.Request) bool { return on.Load() && tc.refused(r) }, 1<<30,
					kubesim.Answer(apierrors.NewTooManyRequests("busy", 30)))
				f.reflect()
				after(time.Second)
				on.Store(true)
				if err := f.sim.RefuseConnections(true); err != nil {
					t.Fatal(err)
				}
				f.create("missed")
				f.sim.Compact()
				if err := f.sim.RefuseConnections(false); err != nil {
					t.Fatal(err)
				}
				f.cost()
				after(20 * time.Minute)
				var busy []time.Time
				for _, r := range f.sim.Requests() {
					if r.Status == http.StatusTooManyRequests {
						busy = append(busy, r.Start)
					}
				}
				// The client itself tries ten times more; then a fault is told, and
				// client-go's Reflector has a backoff of its own.
				soon := 0
				for i := 1; i < len(busy); i++ {
					if busy[i].Sub(busy[i-1]) < 30*time.Second {
						soon++
					}
				}
				if len(busy) < 40 || soon > 4 {
					t.Errorf("%d times, %d of them too soon", len(busy), soon)
				}
				f.costs("in 20 minutes", tc.busy)
				on.Store(false)
				after(6 * time.Minute)
				if diff := f.differs(); diff != "" || f.State().Phase != PhaseLive {
					t.Error(diff, f.State())
				}
				f.costs("afterwards", tc.after)
			})
		})
	}
}
