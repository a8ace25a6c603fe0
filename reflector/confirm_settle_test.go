package reflector

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// A liar stands between a source and its server. The server's lists are right; what the
// watch brings is not.
type liar struct {
	f *fixture

	mu   sync.Mutex
	lose map[string]watch.EventType // events that the server's watch cache has lost, by name
	// ignores: a watch ignores its version, and begins with all objects as ADDED, as in
	// nephio-project/porch#1101.
	ignores bool
	// ring: a watch that begins too early begins at the last few events, as in
	// grafana/grafana#130272.
	ring int
	// versions: lists have the version of their newest object.
	versions bool
	down     bool // no request is answered
}

// filter is the watch as the liar shows it: the events of client-go's decoder are JSON lines.
func (l *liar) roundTrip(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		l.mu.Lock()
		down := l.down
		l.mu.Unlock()
		if down {
			return nil, errors.New("the server is down")
		}
		if !strings.HasSuffix(req.URL.Path, "/configmaps") {
			return next.RoundTrip(req)
		}
		if !isWatch(req) {
			if l.versions { // which reads the list
				req = req.Clone(req.Context())
				req.Header.Del("Accept-Encoding")
			}
			resp, err := next.RoundTrip(req)
			if err != nil || !l.versions {
				return resp, err
			}
			return l.reversion(resp)
		}
		var before []string
		if l.ignores || l.ring > 0 {
			before = l.past(req)
			q := req.URL.Query()
			q.Set("resourceVersion", strconv.FormatUint(l.f.sim.Revision(), 10))
			req = req.Clone(req.Context())
			req.URL.RawQuery = q.Encode()
		}
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			return resp, err
		}
		r, w := io.Pipe()
		go func(body io.ReadCloser) {
			defer body.Close()
			for _, line := range before {
				if _, err := io.WriteString(w, line); err != nil {
					return
				}
			}
			w.CloseWithError(l.copy(w, body))
		}(resp.Body)
		resp.Body = r
		return resp, nil
	})
}

// copy passes on the events that are not lost.
func (l *liar) copy(w io.Writer, body io.Reader) error {
	for dec := json.NewDecoder(body); ; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		var ev struct {
			Type   watch.EventType
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(raw, &ev); err != nil {
			return err
		}
		l.mu.Lock()
		lost := l.lose[ev.Object.Name] == ev.Type
		l.mu.Unlock()
		if lost {
			continue
		}
		if _, err := w.Write(append(raw, '\n')); err != nil {
			return err
		}
	}
}

// past is what the watch begins with in place of what happened after its version.
func (l *liar) past(req *http.Request) (lines []string) {
	objs := l.f.objects()
	if l.ring > 0 {
		if req.URL.Query().Get("resourceVersion") == strconv.FormatUint(l.f.sim.Revision(), 10) {
			return nil
		}
		slices.SortFunc(objs, func(a, b corev1.ConfigMap) int { return versionNumber(a) - versionNumber(b) })
		objs = objs[max(len(objs)-l.ring, 0):]
	}
	for _, o := range objs {
		o.APIVersion, o.Kind = "v1", "ConfigMap"
		b, err := json.Marshal(struct {
			Type   watch.EventType   `json:"type"`
			Object *corev1.ConfigMap `json:"object"`
		}{watch.Added, &o})
		if err != nil {
			panic(err) // it is the test's own object
		}
		lines = append(lines, string(b)+"\n")
	}
	return lines
}

// objects are the server's.
func (f *fixture) objects() (objs []corev1.ConfigMap) {
	list, _, err := f.sim.List(&corev1.ConfigMap{})
	if err != nil {
		panic(err) // the simulator has the type
	}
	for _, o := range list {
		objs = append(objs, *o.(*corev1.ConfigMap))
	}
	return objs
}

func versionNumber(o corev1.ConfigMap) int {
	n, _ := strconv.Atoi(o.ResourceVersion) // the simulator's versions are numbers
	return n
}

// reversion gives a list the version of its newest object.
func (l *liar) reversion(resp *http.Response) (*http.Response, error) {
	defer resp.Body.Close()
	var list map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	newest := 0
	for _, o := range l.f.objects() {
		newest = max(newest, versionNumber(o))
	}
	if m, ok := list["metadata"].(map[string]any); ok {
		m["resourceVersion"] = strconv.Itoa(newest)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(string(b))), int64(len(b))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// bubbleOfLies runs a test over a source that has n objects and a server that lies.
func bubbleOfLies(t *testing.T, n int, o Options, lie func(*liar), test func(f *fixture, l *liar)) {
	t.Helper()
	l := &liar{lose: map[string]watch.EventType{}}
	lie(l)
	bubbleWith(t, n, kubesim.Options{HTTP2: true, NoBookmarks: l.ignores}, o, func(cfg *rest.Config) {
		cfg.ContentType, cfg.AcceptContentTypes = "application/json", "application/json"
		cfg.Wrap(l.roundTrip)
	}, func(f *fixture) {
		l.f = f
		test(f, l)
	})
}

var lies = map[string]func(*liar){
	"loses MODIFIED":                             func(l *liar) { l.lose["cm1"] = watch.Modified },
	"loses DELETED":                              func(l *liar) { l.lose["cm2"] = watch.Deleted },
	"ignores the watch's version":                func(l *liar) { l.ignores = true },
	"the same, and lists have objects' versions": func(l *liar) { l.ignores, l.versions = true, true },
	"begins at its oldest event":                 func(l *liar) { l.ring = 2 },
}

// change changes what the lies are about, and something else.
func (l *liar) change(f *fixture) {
	f.put("cm1", 10, 77)
	f.delete("cm2")
	if l.ring == 0 { // as many are created as deleted
		f.create("new")
		return
	}
	f.create("new")
	for i := range 4 {
		f.put("cm3", 10, uint64(i))
	}
}

// outage runs do while the server cannot be reached. Some servers lie only when a watch opens.
func (l *liar) outage(do func()) {
	set := func(down bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.down = down
	}
	set(true)
	l.f.sim.DropConnections()
	do()
	set(false)
}

// TestLies: a program that was down while a server's watch leaves something out is right
// within 20 s after it wakes, with the default options; and so is one that was running, by
// its audit.
func TestLies(t *testing.T) {
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			t.Run("asleep", func(t *testing.T) {
				bubbleOfLies(t, 6, Options{}, lie, func(f *fixture, l *liar) {
					end := f.live()
					if !until(f.queue.HasSynced) {
						t.Fatal("not synced")
					}
					after(time.Minute)
					f.die(end)
					l.change(f)
					f.other()
					f.takeTold()
					f.reflect()
					after(20 * time.Second)
					if d := f.differs(); d != "" {
						t.Errorf("20 s after it woke: %s; %s, relists %v", d, f.State(), f.State().Relists)
					}
					if told := f.takeTold(); !strings.Contains(told, "Deleted cm2") {
						t.Errorf("told %q", told)
					}
				})
			})
			t.Run("awake", func(t *testing.T) {
				bubbleOfLies(t, 6, Options{AuditEvery: time.Hour}, lie, func(f *fixture, l *liar) {
					f.reflect()
					if !until(f.queue.HasSynced) {
						t.Fatal("not synced")
					}
					after(time.Minute)
					if lost := len(l.lose) > 0; lost {
						l.change(f)
					} else {
						l.outage(func() { l.change(f); f.other() })
					}
					after(time.Minute)
					if f.differs() == "" {
						t.Error("nothing was left out")
					}
					after(time.Hour)
					if d := f.differs(); d != "" {
						t.Errorf("%s; %s, relists %v", d, f.State(), f.State().Relists)
					}
				})
			})
		})
	}
}

// TestLostInAnEarlierLife: an event that was lost before the program ended is found although
// nothing has happened since: the server states the file's own version.
func TestLostInAnEarlierLife(t *testing.T) {
	bubbleOfLies(t, 6, Options{AuditEvery: -1}, lies["loses MODIFIED"], func(f *fixture, l *liar) {
		end := f.live()
		after(time.Minute)
		f.put("cm1", 10, 77)
		f.create("later")
		after(time.Minute)
		if f.differs() == "" {
			t.Fatal("nothing was lost")
		}
		f.die(end)
		f.reflect()
		after(time.Second)
		if d := f.differs(); d != "" {
			t.Errorf("%s; %s", d, f.State())
		}
		if st := f.State(); st.Relists[ReasonDiffers] != 1 || st.Differed != 1 || st.Uncompared {
			t.Errorf("%s %+v", st, st)
		}
	})
}

// TestBusyStartIsNoLie: what happens while a list is read and after it does not look as if
// the server had left something out.
func TestBusyStartIsNoLie(t *testing.T) {
	for _, n := range []int{20, 600} { // 600: the list is read beside the watch
		bubble(t, n, kubesim.Options{}, Options{pageSize: 100}, func(f *fixture) {
			end := f.live()
			if !until(f.queue.HasSynced) {
				t.Fatal("not synced")
			}
			f.die(end)
			f.put("cm1", 10, 1)
			f.delete("cm2")
			stop := make(chan struct{})
			go func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
					name := fmt.Sprint("busy", i)
					f.create(name)
					f.put("cm3", 10, uint64(i))
					if i%2 == 0 {
						f.delete(name)
					}
					if i%50 == 0 && i/50+5 < n {
						f.delete(fmt.Sprint("cm", i/50+5))
					}
				}
			}()
			f.reflect()
			after(20 * time.Second)
			close(stop)
			after(time.Minute)
			if st := f.State(); len(st.Relists) != 0 || st.Phase != PhaseLive {
				t.Errorf("%d objects: %s %v", n, st, st.Relists)
			}
			if d := f.differs(); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestUncompared: a source that goes on from the file says so until a list has been compared.
func TestUncompared(t *testing.T) {
	bubble(t, 6, kubesim.Options{}, Options{Confirm: ConfirmBookmark}, func(f *fixture) {
		end := f.live()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		first := f.State()
		if first.Uncompared || first.Compared.IsZero() {
			t.Errorf("after the first list: %s %+v", first, first)
		}
		after(time.Hour)
		f.die(end)
		f.other()
		f.reflect()
		after(time.Minute)
		if st := f.State(); st.Phase != PhaseLive || !st.Uncompared || !st.Compared.Equal(first.Compared) {
			t.Errorf("%s %+v", st, st)
		}
		if d, ok := f.audit.in(); ok {
			t.Errorf("an audit in %s over a metered link", d)
		}
	})
	bubble(t, 6, kubesim.Options{}, Options{}, func(f *fixture) {
		end := f.live()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Hour)
		f.die(end)
		f.other()
		f.reflect()
		after(time.Minute)
		if st := f.State(); st.Uncompared || time.Since(st.Compared) > time.Minute || st.Differed != 0 ||
			len(st.Relists) > 0 {
			t.Errorf("%s %+v", st, st)
		}
		if d, ok := f.audit.in(); !ok || d < 11*time.Hour || d > 24*time.Hour {
			t.Errorf("an audit in %s", d)
		}
	})
}

// TestStrippedMetadata: a transform that takes managed fields away does not make the next
// start wait for a bookmark, since the size of metadata was guessed without it.
func TestStrippedMetadata(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{}, func(f *fixture) {
		for i := range 100 {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("cm", i)}}
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 500),
				Operation: metav1.ManagedFieldsOperationUpdate}}
			if err := f.sim.Create(o); err != nil {
				t.Fatal(err)
			}
		}
		strip := func(obj any) (any, error) {
			m, err := meta.Accessor(obj)
			if err == nil {
				m.SetManagedFields(nil)
			}
			return obj, err
		}
		f.queue.Close()
		f.transform = strip
		f.store.Release()
		f.claim()
		end := f.live()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Minute)
		f.die(end)
		f.other()
		f.reflect()
		after(100 * time.Millisecond)
		if !f.queue.HasSynced() {
			t.Errorf("%s, %d bytes of metadata each", f.State(), f.store.Upstream.Facts().MetadataSize)
		}
	})
}
