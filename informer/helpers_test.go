package informer

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/reflector"
)

func cm(name string, data ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"data": strings.Join(data, ",")}}
}

func difference(want []kubesim.Object, got []any) string {
	byKey := map[string]any{}
	for _, o := range got {
		k, _ := cache.MetaNamespaceKeyFunc(o)
		byKey[k] = o
	}
	for _, o := range want {
		k, _ := cache.MetaNamespaceKeyFunc(o)
		if !apiequality.Semantic.DeepEqual(o, byKey[k]) {
			return fmt.Sprintf("%s: server %v, cache %v", k, o, byKey[k])
		}
		delete(byKey, k)
	}
	if len(byKey) > 0 {
		return fmt.Sprint("the cache has what the server has not: ", slices.Collect(maps.Keys(byKey)))
	}
	return ""
}

var eventually = waittest.Eventually

func listWatch(cfg *rest.Config) cache.ListerWatcher {
	return cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "configmaps", "",
		fields.Everything())
}

// byBookmark is for lives in which any list would be one too many. Otherwise a list of
// the metadata of few objects may confirm them.
func byBookmark(o Options) Options {
	o.Reflector.Confirm = reflector.ConfirmBookmark
	return o
}

func handlersOf(t *testing.T, path string) []boltstore.HandlerState {
	t.Helper()
	db, err := boltstore.Open(path, boltstore.Options{ReadOnly: true, Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	states, err := db.States()
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	return states[0].Handlers
}

var inSource = filetest.InSource

// TestMain sets process-wide values before any goroutine reads them.
func TestMain(m *testing.M) {
	// One of them sleeps until after the last error, which is ages ahead of a
	// bubble's clock.
	utilruntime.ErrorHandlers = nil
	// client-go's endless messages about broken links would hide a failure.
	flag.Parse()
	if many := os.Getenv("KUBEWAKE_TURMOIL") != "" && os.Getenv("KUBEWAKE_SEED") == ""; many || !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
	os.Exit(m.Run())
}

// bubble runs a test in a synctest bubble: all sleeps, client-go's too, are on
// the bubble's clock, and so a day takes seconds.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	// Things that exist once in the process must not belong to the bubble.
	warm := newWorld(t)
	warm.create("a")
	l := warm.live(Options{}, newRecorder(t)).run().synced()
	warm.update("a", "b")
	l.equal().end()
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{HistorySize: 100_000})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sim.Close)
		test(t, &world{t: t, sim: sim, path: filepath.Join(t.TempDir(), "wake.db")})
	})
}

func after(d time.Duration) {
	time.Sleep(d) // on the bubble's clock, which takes no time: the caller's time passes
	synctest.Wait()
}

func isClosed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// within is eventually with another timeout.
func within(t *testing.T, what string, d time.Duration, cond func() bool) {
	t.Helper()
	deadline := time.After(d)
	for tick := time.NewTicker(5 * time.Millisecond); !cond(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out: %s", what)
		}
	}
}

func closed(s *boltstore.Snapshot, err error) error {
	if err != nil {
		return err
	}
	return s.Close()
}

// transactions returns the number of the file's transactions.
func transactions(t *testing.T, db *boltstore.DB) (id int) {
	t.Helper()
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, snap)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.View(func(tx *bolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// tuned are internal options.
func tuned(t tuning.Reflector) (o reflector.Options) {
	tuning.SetReflector(&o, t)
	return o
}
