package reflector

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// TestEachAnswer: whatever a request of any kind is answered, once, a few times
// or for an hour, the objects stay, nothing is told that has not happened,
// nobody is asked in a loop, what is live is the truth, and in the end
// everything that was missed has been told.
func TestEachAnswer(t *testing.T) {
	requests := map[string]func(*http.Request) bool{
		"question": func(r *http.Request) bool { return r.URL.Query().Get("limit") == "1" },
		"first page": func(r *http.Request) bool {
			return r.URL.Query().Get("limit") == "4" && r.URL.Query().Get("continue") == ""
		},
		"page":          func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" },
		"metadata":      func(r *http.Request) bool { return asksMetadata(r) && !strings.Contains(r.URL.Path, "kube-system") },
		"metadata page": func(r *http.Request) bool { return asksMetadata(r) && r.URL.Query().Get("continue") != "" },
		"get":           isGet,
		"watch":         isWatch,
		"cluster":       func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/kube-system") },
	}
	status := func(code int, header ...string) func(*http.Response) {
		return func(resp *http.Response) {
			_ = resp.Body.Close()
			s := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"of the test","reason":%q,"code":%d}`,
				map[int]metav1.StatusReason{401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 429: "TooManyRequests"}[code], code)
			*resp = http.Response{StatusCode: code, Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: resp.Request,
				Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(s)), ContentLength: -1}
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
	answers := map[string]func(*http.Response){
		"429":      status(429, "Retry-After", "10"),
		"429 bare": status(429),
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
		"empty":     body(func([]byte) ([]byte, error) { return nil, nil }),
		"cut":       body(func(b []byte) ([]byte, error) { return b[:len(b)*2/3], io.ErrUnexpectedEOF }),
		"cut short": body(func(b []byte) ([]byte, error) { return b[:len(b)*2/3], nil }),
	}
	for _, code := range []int{400, 401, 403, 404, 405, 406, 408, 409, 410, 415, 422, 500, 501, 503, 504} {
		answers[fmt.Sprint(code)] = status(code)
	}
	for _, media := range []string{mediaProto, mediaJSON} {
		for request, is := range requests {
			for answer, make := range answers {
				for _, times := range []int64{1, 5, 1 << 30} {
					name := fmt.Sprintf("%s/%s/%s/%d", media[len(media)-4:], request, answer, times)
					t.Run(name, func(t *testing.T) {
						warm(t)
						synctest.Test(t, func(t *testing.T) {
							sim := kubesim.New(kubesim.Options{NoFlowSchemas: true})
							if err := sim.StartPipes(); err != nil {
								t.Fatal(err)
							}
							var left, faults, asked atomic.Int64
							o := Options{PageSize: 4, Repair: RepairFull}
							if strings.HasPrefix(request, "meta") || request == "get" {
								o.Repair = RepairMetadata
							}
							f := fixtureWith(t, sim, 12, clock.RealClock{}, o, func(cfg *rest.Config) {
								cfg.ContentType, cfg.AcceptContentTypes = media, media
								cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
									return roundTripper(func(req *http.Request) (*http.Response, error) {
										asked.Add(1)
										resp, err := next.RoundTrip(req)
										if err == nil && is(req) && left.Add(-1) >= 0 {
											faults.Add(1)
											resp.Request = req
											make(resp)
										}
										return resp, err
									})
								})
							}, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
							f.reflect()
							after(time.Second)
							f.takeTold()
							left.Store(times)
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
							after(time.Hour)
							n := asked.Load()
							if n > 2500 {
								t.Errorf("%d requests in an hour", n)
							}
							st, d := f.State(), f.differs()
							if st.Phase == Live && d != "" || times < 10 && (st.Phase != Live || d != "") {
								t.Errorf("%s, %s", st, d)
							}
							if st.Phase != Live && len(f.store.ListKeys()) != 12 {
								t.Errorf("%d objects", len(f.store.ListKeys()))
							}
							t.Logf("%d faults, %d requests, %s, %v", faults.Load(), n, st, st.Relists)
							left.Store(0)
							after(10 * time.Minute)
							st, d = f.State(), f.differs()
							if st.Phase != Live || d != "" {
								t.Errorf("afterwards %s, %s", st, d)
							}
							if told := f.takeTold(); told != "Added cm4a, Deleted cm10, Updated cm7" {
								t.Errorf("told %s", told)
							}
							if n := st.Relists[ReasonExpired]; n != 1 {
								t.Logf("RELISTS %v", st.Relists)
							}
						})
					})
				}
			}
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
