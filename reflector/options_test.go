package reflector

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestConfirmTimeout: a watch that is behind the server's stated version has the timeout
// of the option, is confirmed by the bookmark before its end, and is followed by a long
// one.
func TestConfirmTimeout(t *testing.T) {
	for seconds, o := range map[string]Options{"3": {Confirm: ConfirmBookmark},
		"9": {Confirm: ConfirmBookmark, confirmTimeout: 9 * time.Second}} {
		t.Run(seconds, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, o, func(f *fixture) {
				f.list()
				f.other()
				f.restart()
				f.forget()
				f.reflect()
				after(f.o.confirmTimeout - 2*time.Second)
				if f.queue.HasSynced() {
					t.Error("synced before the bookmark")
				}
				after(time.Second)
				if !f.queue.HasSynced() {
					t.Error("not synced by the bookmark")
				}
				after(3 * time.Second)
				var timeouts []string
				for _, r := range f.sim.Requests() {
					if r.Verb == "watch" {
						timeouts = append(timeouts, r.Query.Get("timeoutSeconds"))
					}
				}
				if len(timeouts) != 2 || timeouts[0] != seconds || len(timeouts[1]) != 3 {
					t.Errorf("timeouts %v", timeouts)
				}
				if diff := f.differs(); diff != "" {
					t.Error(diff)
				}
				f.costs("confirmed", kubesim.Cost{Questions: 1, Watches: 2, Others: 1, Bytes: 800})
			})
		})
	}
}

// TestStandaloneCluster: the name that a caller gives keeps the same list of two
// clusters apart in one file; without one it is the same source.
func TestStandaloneCluster(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		open := func(name string, o Options) (*stock, error) {
			sim := kubesim.New(kubesim.Options{})
			if err := sim.StartPipes(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(sim.Close)
			s := &stock{t: t, sim: sim}
			s.write('+', name, "")
			client := kubernetes.NewForConfigOrDie(WrapConfig(sim.RESTConfig())).CoreV1().RESTClient()
			lw := cache.NewListWatchFromClient(client, "configmaps", "", fields.Everything())
			s.lw, err = NewStandalone(db, lw, &corev1.ConfigMap{}, o)
			return s, err
		}
		for _, name := range []string{"east", "west"} {
			s, err := open(name, Options{Cluster: name})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.lw.Store().Source(); got.Cluster != name || !strings.Contains(got.String(), name) {
				t.Errorf("source %s", got)
			}
			s.inf = cache.NewSharedIndexInformer(s.lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
			stop, done := make(chan struct{}), make(chan struct{})
			go func() { defer close(done); s.inf.Run(stop) }()
			t.Cleanup(func() {
				close(stop)
				<-done
				if err := s.lw.Close(); err != nil {
					t.Error(err)
				}
			})
			after(5 * time.Second)
			if diff := s.differs(); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if _, err := open("east", Options{Cluster: "east"}); !errors.Is(err, boltstore.ErrClaimed) {
			t.Errorf("claimed twice: %v", err)
		}
	})
}
