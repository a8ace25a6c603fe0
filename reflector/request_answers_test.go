package reflector

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestEachAnswer: a kind of request gets a wrong answer for a while, from the server or
// from a proxy. The objects stay, there is no request in a loop, a live source is right,
// and afterwards exactly the missed changes are told.
func TestEachAnswer(t *testing.T) {
	requests := map[string]func(*http.Request) bool{
		"question": func(r *http.Request) bool { return r.URL.Query().Get("limit") == "1" },
		"first page": func(r *http.Request) bool {
			return r.URL.Query().Get("limit") == "4" && r.URL.Query().Get("continue") == ""
		},
		"page": func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" },
		"metadata": func(r *http.Request) bool {
			return asksMetadata(r) && !strings.Contains(r.URL.Path, "kube-system")
		},
		"metadata page": func(r *http.Request) bool { return asksMetadata(r) && r.URL.Query().Get("continue") != "" },
		"get":           isGet,
		"form":          func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/openapi/v3/") },
		"version":       func(r *http.Request) bool { return r.URL.Path == "/version" },
		"watch":         isWatch,
		"cluster":       func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/kube-system") },
	}
	status := func(code int, header ...string) func(*http.Response) {
		return func(resp *http.Response) {
			_ = resp.Body.Close()
			s := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"of the test","reason":%q,"code":%d}`,
				map[int]metav1.StatusReason{401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired",
					429: "TooManyRequests"}[code], code)
			*resp = http.Response{StatusCode: code, Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1,
				ProtoMinor: 1, Request: resp.Request,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(s)),
				ContentLength: -1}
			for i := 0; i < len(header); i += 2 {
				resp.Header.Set(header[i], header[i+1])
			}
		}
	}
	body := func(change func(b []byte) ([]byte, error)) func(*http.Response) {
		return func(resp *http.Response) {
			var b []byte
			if resp.Request.URL.Query().Get("watch") == "" {
				b, _ = io.ReadAll(resp.Body)
			} else {
				b = make([]byte, 100)
				n, _ := resp.Body.Read(b)
				b = b[:n]
			}
			_ = resp.Body.Close()
			b, err := change(b)
			resp.Header.Del("Content-Length")
			resp.ContentLength = -1
			resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b), errReader{err}))
		}
	}
	says := func(text string) func(*http.Response) {
		return func(resp *http.Response) {
			status(200)(resp)
			resp.Body = io.NopCloser(strings.NewReader(text))
		}
	}
	answers := map[string]func(*http.Response){
		"429": status(429),
		"rest expired": func(resp *http.Response) {
			status(410)(resp)
			resp.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","metadata":{"continue":"again"},"status":"Failure","reason":"Expired","code":410}`))
		},
		"html": func(resp *http.Response) {
			status(200, "Content-Type", "text/html")(resp)
			resp.Body = io.NopCloser(strings.NewReader("<html>log in</html>"))
		},
		"bad gateway": func(resp *http.Response) {
			status(502, "Content-Type", "text/html")(resp)
			resp.Body = io.NopCloser(strings.NewReader("<html>bad</html>"))
		},
		// What a gateway says in place of the server. A client of Go types reads each as a
		// list without objects and version.
		"object":       says("{}"),
		"ok":           says(`{"status":"ok"}`),
		"success":      says(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`),
		"another kind": says(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1000000"},"items":[]}`),
		"empty":        body(func([]byte) ([]byte, error) { return nil, nil }),
		"cut":          body(func(b []byte) ([]byte, error) { return b[:len(b)*2/3], io.ErrUnexpectedEOF }),
		"cut short":    body(func(b []byte) ([]byte, error) { return b[:len(b)*2/3], nil }),
	}
	for _, code := range []int{400, 401, 403, 404, 410, 415, 422, 500, 501, 503, 504} {
		answers[fmt.Sprint(code)] = status(code)
	}
	// Another form of the list is asked for where this one is not given.
	inFull := []string{"empty", "html", "cut short", "400", "415", "422", "500", "501"}
	warm(t)
	for request, is := range requests {
		for answer, mangle := range answers {
			t.Run(request+", "+answer, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim := kubesim.New(kubesim.Options{})
					if err := sim.StartPipes(); err != nil {
						t.Fatal(err)
					}
					var on atomic.Bool
					var faults, asked atomic.Int64
					metadata := strings.HasPrefix(request, "metadata")
					o := Options{pageSize: 4, repair: listFull}
					if metadata || request == "get" {
						o.repair = listMetadata
					}
					f := fixtureWith(t, sim, 12, clock.RealClock{}, o, func(cfg *rest.Config) {
						cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
							return roundTripper(func(req *http.Request) (*http.Response, error) {
								asked.Add(1)
								resp, err := next.RoundTrip(req)
								if err == nil && on.Load() && is(req) {
									faults.Add(1)
									resp.Request = req
									mangle(resp)
								}
								return resp, err
							})
						})
					}, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
					f.reflect()
					after(time.Second)
					f.takeTold()
					on.Store(true)
					if err := sim.RefuseConnections(true); err != nil {
						t.Fatal(err)
					}
					f.create("cm4a")
					f.delete("cm10")
					f.put("cm7", 10, 3)
					sim.Compact()
					if err := sim.RefuseConnections(false); err != nil {
						t.Fatal(err)
					}
					asked.Store(0)
					after(20 * time.Minute)
					st, d := f.State(), f.differs()
					if n := asked.Load(); n > 800 || faults.Load() == 0 {
						t.Errorf("%d requests in 20 minutes, %d of them spoilt", n, faults.Load())
					}
					if st.Phase == PhaseLive && d != "" || st.Phase != PhaseLive && st.Phase != PhaseCatchingUp &&
						len(f.store.ListKeys()) != 12 {
						t.Errorf("%s, %s", st, d)
					}
					if metadata && slices.Contains(inFull, answer) && st.Phase != PhaseLive {
						t.Errorf("not read in full: %s", st)
					}
					on.Store(false)
					after(6 * time.Minute)
					st, d = f.State(), f.differs()
					if st.Phase != PhaseLive || d != "" {
						t.Errorf("afterwards %s, %s", st, d)
					}
					if told := f.takeTold(); told != "Added cm4a, Deleted cm10, Updated cm7" {
						t.Errorf("told %s", told)
					}
				})
			})
		}
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) {
	if r.err == nil {
		return 0, io.EOF
	}
	return 0, r.err
}
