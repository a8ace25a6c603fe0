package informer

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/devicetest"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

func TestSleepAndWake(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	r := newRecorder(t)
	l := w.live(Options{}, r).run().synced().equal()
	r.expect("initial a", "initial b")
	w.create("c")
	w.update("a", "1")
	w.delete("b")
	r.expect("add c", "update a", "delete b")
	l.equal().end()

	w.create("d")
	w.update("a", "2")
	w.delete("c")
	w.sim.ResetRequests()
	// No list may confirm before the watch has brought the missed changes.
	l = w.live(Options{Reflector: reflector.Options{Confirm: reflector.ConfirmBookmark}}, r)
	if got := len(l.inf.GetStore().List()); got != 2 {
		t.Fatalf("before Run: %d objects", got)
	}
	l.run().synced().equal()
	eventually(t, "told", func() bool { return slices.Equal(r.names(), []string{"a", "d"}) })
	for _, req := range w.sim.Requests() {
		if req.FullRead() {
			t.Errorf("the restart read everything: %+v", req)
		}
	}
	l.end()

	// Nothing changed: the server's version is the file's, all at once.
	w.sim.ResetRequests()
	w.live(Options{}, r).run().synced().equal()
	var bytes int64
	for _, req := range w.sim.Requests() {
		bytes += req.BodyBytes
	}
	if bytes > 1000 || len(w.sim.Requests()) > 3 {
		t.Errorf("a quiet wake took %d requests and %d bytes", len(w.sim.Requests()), bytes)
	}
}

func TestExpiredVersionIsRepaired(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.create(fmt.Sprint("keep", i))
	}
	w.create("goes")
	w.create("changes")
	r := newRecorder(t)
	l := w.live(Options{Reflector: tuned(tuning.Reflector{PageSize: 5})}, r).run().synced().equal()
	eventually(t, "told", func() bool { return len(r.names()) == 22 })
	r.take()
	// Not seen by the watch: it is cut first.
	if err := w.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	w.delete("goes")
	w.update("changes", "1")
	w.create("comes")
	if err := w.sim.Restart(kubesim.RestartOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sim.ResetRequests()
	r.expect("missed goes", "update changes", "add comes")
	l.equal()
	eventually(t, "a relist for an expired version", func() bool {
		return l.inf.State().Relists[reflector.ReasonExpired] == 1
	})
	w.costs("the repair", kubesim.Cost{Questions: 1, FullReads: 5, Watches: 3, Others: 2, Forms: 2, Bytes: 7000})
	w.create("later")
	r.expect("add later")
}

func TestRestoredServer(t *testing.T) {
	w := newWorld(t)
	w.create("old", "1")
	w.create("revived")
	then := w.sim.Revision()
	w.delete("revived")
	r := newRecorder(t)
	l := w.live(Options{}, r).run().synced().equal()
	w.update("old", "2")
	w.create("lost")
	l.equal()
	eventually(t, "told", func() bool { return slices.Equal(r.names(), []string{"lost", "old"}) })
	l.end()
	r.take()
	if err := w.sim.Rewind(then); err != nil {
		t.Fatal(err)
	}
	w.sim.ResetRequests()
	l = w.live(Options{}, r).run().synced().equal()
	eventually(t, "told", func() bool { return slices.Equal(r.names(), []string{"old", "revived"}) })
	if r.there["old"].Data["data"] != "1" {
		t.Errorf("the handler has %v", r.there["old"])
	}
	if st := l.inf.Store().State(); st.Timeline != 1 {
		t.Errorf("%+v", st)
	}
	w.create("after")
	l.equal()
	w.costs("the wake", kubesim.Cost{FullReads: 2, Watches: 2, Others: 1, Forms: 2, Bytes: 1850})
}

func TestRestoredServerInALiveProcess(t *testing.T) {
	w := newWorld(t)
	w.create("old", "1")
	then := w.sim.Revision()
	w.create("lost")
	r := newRecorder(t)
	l := w.live(Options{}, r).run().synced().equal().watching()
	w.sim.ResetRequests()
	if err := w.sim.Rewind(then); err != nil {
		t.Fatal(err)
	}
	eventually(t, "told", func() bool { return slices.Equal(r.names(), []string{"old"}) })
	l.equal()
	w.create("after")
	l.equal()
	w.costs("going on", kubesim.Cost{Questions: 2, FullReads: 1, Watches: 2, Others: 1, Forms: 2, Bytes: 1550})
}

func TestOfflineStart(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.live(Options{}).run().synced().equal().end()
	if err := w.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	r := newRecorder(t)
	l := w.live(Options{}, r).run()
	r.expect("initial a")
	eventually(t, "offline", func() bool { return l.inf.State().Phase == reflector.PhaseOffline })
	l.notSynced()
	if l.inf.State().Confirmed.IsZero() {
		t.Errorf("%+v", l.inf.State())
	}
	if err := w.sim.RefuseConnections(false); err != nil {
		t.Fatal(err)
	}
	l.synced().equal()
}

func TestMaxStaleness(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.live(Options{}).run().synced().end()
	if err := w.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	w.live(Options{MaxStaleness: -1}).run().synced().end()
	w.live(Options{MaxStaleness: time.Hour}).run().synced().end()
	l := w.live(Options{MaxStaleness: time.Nanosecond}).run()
	eventually(t, "offline", func() bool { return l.inf.State().Phase == reflector.PhaseOffline })
	l.notSynced() // the data are too old
	l.end()
	d := devicetest.New(time.Now().Add(-2 * time.Hour)) // another boot, with a clock behind
	w.options.Clock = d
	l = w.live(Options{MaxStaleness: time.Hour}).run()
	eventually(t, "offline", func() bool { return l.inf.State().Phase == reflector.PhaseOffline })
	l.notSynced() // their age is not known
}

// TestWatchErrorHandler: the watch error handler is called for a refusal, and the data
// stay.
func TestWatchErrorHandler(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.live(Options{}).run().synced().equal().end()
	var refuses atomic.Bool // all requests: a late one of the life before must not take the refusal
	refuses.Store(true)
	w.sim.FailNext(func(*http.Request) bool { return refuses.Load() }, 1<<30,
		kubesim.Answer(apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no"))))
	l := w.live(Options{})
	told := make(chan error, 1000)
	if err := l.inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { told <- err }); err != nil {
		t.Fatal(err)
	}
	l.run()
	select {
	case err := <-told:
		if !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("not told")
	}
	refuses.Store(false)
	if got := len(l.inf.GetStore().List()); got != 1 {
		t.Fatalf("%d objects", got)
	}
	l.synced().equal() // it goes on by itself
	if err := l.inf.SetWatchErrorHandler(nil); err == nil {
		t.Error("set after the start")
	}
}

func TestTransform(t *testing.T) {
	w := newWorld(t)
	w.create("a", "secret")
	strip := func(o any) (any, error) { o.(*corev1.ConfigMap).Data = nil; return o, nil }
	w.live(Options{}).run().synced().equal().end()
	l := w.live(Options{Transform: strip, TransformVersion: "1"})
	if got := l.inf.GetStore().List(); len(got) != 0 {
		t.Fatalf("served untransformed: %v", got)
	}
	l.run().synced()
	obj, ok, err := l.inf.GetStore().GetByKey("default/a")
	if err != nil || !ok || obj.(*corev1.ConfigMap).Data != nil {
		t.Fatal(obj, ok, err)
	}
	l.end()
	w.sim.ResetRequests()
	w.live(byBookmark(Options{Transform: strip, TransformVersion: "1"})).run().synced()
	for _, req := range w.sim.Requests() {
		if req.FullRead() {
			t.Errorf("the same transform read everything: %+v", req)
		}
	}
}

func TestIdentity(t *testing.T) {
	w := newWorld(t)
	db, err := boltstore.Open(w.path, boltstore.Options{Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	plain := w.sim.RESTConfig()
	if _, err := NewSharedIndexInformer(db, listWatch(plain), &corev1.ConfigMap{}, Options{}); !errors.Is(err,
		reflector.ErrUnidentified) {
		t.Fatalf("identity was guessed: %v", err)
	}
	w.sim.ResetRequests()
	inf, err := NewSharedIndexInformer(db, listWatch(w.config()), &corev1.ConfigMap{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.sim.Requests()); n != 0 {
		t.Errorf("learning the identity sent %d requests", n)
	}
	want := boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}
	if inf.Store().Source() != want {
		t.Errorf("%+v", inf.Store().Source())
	}
	if _, err := NewSharedIndexInformer(db, listWatch(w.config()), &corev1.ConfigMap{}, Options{}); !errors.Is(err,
		boltstore.ErrClaimed) {
		t.Errorf("claimed twice: %v", err)
	}
}

// TestDamageHeals: a record that is found damaged while the informer runs is
// never served, and read again from the server.
func TestDamageHeals(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.create(fmt.Sprint("cm", i), "0123456789")
	}
	w.live(Options{}).run().synced().equal().end()
	filetest.InSource(t, w.path, func(src *bolt.Bucket) error {
		items := src.Bucket([]byte("items"))
		key, v := items.Cursor().First()
		key, v = slices.Clone(key), slices.Clone(v)
		v[len(v)-3] ^= 1
		return items.Put(key, v)
	})
	r := newRecorder(t)
	l := w.live(Options{}, r).run()
	eventually(t, "relisted", func() bool { // a list that compares may find it before a read does
		relists := l.inf.State().Relists
		return relists[reflector.ReasonDamaged]+relists[reflector.ReasonDiffers] > 0
	})
	for i := range 5 {
		obj, _, err := l.inf.GetStore().GetByKey(fmt.Sprint("default/cm", i))
		if err == nil && obj != nil && obj.(*corev1.ConfigMap).Data["data"] != "0123456789" {
			t.Fatalf("served %v", obj)
		}
	}
	l.synced().equal()
	eventually(t, "told of all", func() bool { return len(r.names()) == 5 })
	// The list's objects can be read, and told, just before Err is nil.
	eventually(t, "healed", func() bool { return l.inf.Store().Err() == nil })
}

// TestCloseFirst closes the file under a running informer.
func TestCloseFirst(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	l := w.live(Options{}, newRecorder(t)).run().synced()
	if err := l.db.Close(); err == nil || !strings.Contains(err.Error(), "configmaps/v1") {
		t.Fatalf("Close does not say what still ran: %v", err)
	}
	w.create("b")
	l.cancel()
	<-l.done
	w.live(Options{}).run().synced().equal()
}
