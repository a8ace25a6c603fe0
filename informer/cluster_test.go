package informer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/reflector"
)

// TestAnotherCluster: cached objects of another cluster are removed, and none of them
// is told as deleted.
func TestAnotherCluster(t *testing.T) {
	w := newWorld(t)
	w.create("theirs")
	r := newRecorder(t)
	l := w.live(Options{}, r).run().synced()
	r.expect("initial theirs")
	l.end()
	other := newWorld(t)
	other.path = w.path
	other.create("ours")
	l = other.live(Options{}, r).run().synced().equal()
	eventually(t, "told", func() bool { return slices.Contains(r.names(), "ours") })
	for _, told := range r.take() {
		if told != "initial theirs" && told != "initial ours" && told != "add ours" {
			t.Errorf("told %q", told)
		}
	}
	eventually(t, "counted", func() bool { return l.inf.State().Relists[reflector.ReasonCluster] == 1 })
}

// TestMovedServer: another address of the same cluster is the same source.
func TestMovedServer(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.live(Options{}).run().synced().end()
	w.sim.ResetRequests()
	cfg := w.config()
	cfg.Host = strings.Replace(cfg.Host, "127.0.0.1", "localhost", 1)
	db, err := boltstore.Open(w.path, boltstore.Options{Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	l := &life{world: w, db: db, done: make(chan struct{})}
	if l.inf, err = NewSharedIndexInformer(db, listWatch(cfg), &corev1.ConfigMap{}, byBookmark(Options{})); err != nil {
		t.Fatal(err)
	}
	l.run().synced().equal()
	for _, req := range w.sim.Requests() {
		if req.FullRead() {
			t.Errorf("the move read everything: %+v", req)
		}
	}
	if st := l.inf.Store().State(); st.Server != cfg.Host {
		t.Errorf("the file says %s, it is at %s", st.Server, cfg.Host)
	}
}

// TestRecreatedCluster: another cluster at the same address is noticed at the
// first contact, whether its versions are behind the file's or have overtaken
// them, while the program runs or not. The file then knows it: the next life goes on.
func TestRecreatedCluster(t *testing.T) {
	for _, running := range []bool{false, true} {
		for name, rv := range map[string]uint64{"behind": 1, "ahead": 1_000_000} {
			t.Run(fmt.Sprintf("%s, running %v", name, running), func(t *testing.T) {
				w := newWorldOf(t, kubesim.Options{InitialRV: 1000})
				for i := range 5 {
					w.create(fmt.Sprint("theirs", i))
				}
				r := newRecorder(t)
				l := w.live(Options{}, r).run().synced().equal()
				eventually(t, "told", func() bool { return len(r.names()) == 5 })
				r.take()
				if !running {
					l.end()
				}
				if err := w.sim.Recreate(rv); err != nil {
					t.Fatal(err)
				}
				for i := range 5 {
					w.create(fmt.Sprint("ours", i))
				}
				if !running {
					l = w.live(Options{}, r).run()
				}
				l.equal()
				eventually(t, "told", func() bool {
					return slices.Contains(r.names(), "ours0") && slices.Contains(r.names(), "ours4")
				})
				for _, told := range r.take() {
					if strings.HasPrefix(told, "delete") {
						t.Errorf("told %q", told)
					}
				}
				eventually(t, "counted", func() bool { return l.inf.State().Relists[reflector.ReasonCluster] > 0 })
				st := l.inf.State()
				if len(st.Relists) != 1+map[bool]int{true: 1}[running] || st.Relists[reflector.ReasonCluster] != 1 {
					t.Errorf("relists: %v", st.Relists)
				}
				l.end()

				// The file knows the cluster: deletes that it has missed are told.
				w.delete("ours0")
				w.sim.ResetRequests()
				w.sim.Stall(true) // a delete that comes before the replay leaves it nothing to show
				l = w.live(Options{}, r).run()
				r.expect("initial ours0", "initial ours1", "initial ours2", "initial ours3", "initial ours4")
				w.sim.Stall(false)
				l.synced().equal()
				if st := l.inf.State(); len(st.Relists) > 0 || st.Resumes != 1 {
					t.Errorf("the next life: relists %v, %d resumes", st.Relists, st.Resumes)
				}
				r.expect("delete ours0")
				asked := 0
				for _, req := range w.sim.Requests() {
					if strings.HasSuffix(req.Path, "/kube-system") {
						asked++
					}
				}
				if asked != 1 {
					t.Errorf("asked %d times for the cluster", asked)
				}
			})
		}
	}
}

// TestClusterQuestionFails: a server that fails the first question, which cluster it is, fails
// like any other request: the watch error handler gets its status.
func TestClusterQuestionFails(t *testing.T) {
	for name, want := range map[string]struct {
		answer *apierrors.StatusError
		is     func(error) bool
	}{
		"unavailable":       {apierrors.NewServiceUnavailable("test"), apierrors.IsServiceUnavailable},
		"too many requests": {apierrors.NewTooManyRequests("test", 1), apierrors.IsTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			w.sim.FailNext(func(r *http.Request) bool {
				return strings.HasSuffix(r.URL.Path, "/kube-system")
			}, 1, kubesim.Answer(want.answer))
			l := w.live(Options{})
			told := make(chan error, 100)
			if err := l.inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { told <- err }); err != nil {
				t.Fatal(err)
			}
			l.run()
			select {
			case err := <-told:
				if !want.is(err) {
					t.Errorf("the handler is told %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("not told")
			}
			l.synced().equal()
		})
	}
}
