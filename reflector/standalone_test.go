package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/tuning"
)

// stock is client-go's own informer over a file.
type stock struct {
	t    *testing.T
	sim  *kubesim.Server
	path string

	wrapped bool // the informer sees List and Watch of lw, and no other method

	db  *boltstore.DB
	lw  *Standalone
	inf cache.SharedIndexInformer
	end func()

	mu   sync.Mutex
	told []string
}

func (s *stock) start(o Options) {
	s.t.Helper()
	var err error
	var file boltstore.Options
	tuning.SetFile(&file, tuning.File{MaxCommitBytes: 20_000})
	if s.db, err = boltstore.Open(s.path, file); err != nil {
		s.t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(WrapConfig(s.sim.RESTConfig())).CoreV1().RESTClient()
	lw := cache.NewListWatchFromClient(client, "configmaps", "", fields.Everything())
	if s.lw, err = NewStandalone(s.db, lw, &corev1.ConfigMap{}, o); err != nil {
		s.t.Fatal(err)
	}
	var seen cache.ListerWatcher = s.lw
	if s.wrapped {
		seen = struct{ cache.ListerWatcher }{s.lw}
	}
	s.inf = cache.NewSharedIndexInformer(seen, &corev1.ConfigMap{}, 0, cache.Indexers{})
	// They may do so: the objects are theirs.
	_ = s.inf.SetTransform(func(o any) (any, error) { o.(*corev1.ConfigMap).ManagedFields = nil; return o, nil })
	note := func(what string, obj any) {
		key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, what+strings.TrimPrefix(key, "default/"))
	}
	_, _ = s.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { note("+", o) },
		UpdateFunc: func(_, o any) { note("~", o) },
		DeleteFunc: func(o any) { note("-", o) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.inf.RunWithContext(ctx) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := s.lw.Close(); err != nil {
			s.t.Error(err)
		}
		if r, err := s.db.Check(); err != nil || !r.Sound() {
			s.t.Errorf("%+v %v", r, err)
		}
		if err := s.db.Close(); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *stock) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	slices.Sort(told)
	return strings.Join(told, " ")
}

// differs says how the informer differs from the server.
func (s *stock) differs() string {
	want, _, err := s.sim.List(&corev1.ConfigMap{})
	if err != nil {
		return err.Error()
	}
	if n := len(s.inf.GetStore().ListKeys()); n != len(want) {
		return fmt.Sprintf("%d objects, want %d", n, len(want))
	}
	for _, o := range want {
		got, ok, err := s.inf.GetStore().GetByKey(o.GetNamespace() + "/" + o.GetName())
		if err != nil || !ok || !apiequality.Semantic.DeepEqual(got, o) {
			return fmt.Sprintf("%s: %+v, want %+v", o.GetName(), got, o)
		}
	}
	return ""
}

func (s *stock) write(what byte, name string, data string) {
	s.t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"": data}}
	var err error
	switch what {
	case '+':
		err = s.sim.Create(o)
	case '~':
		err = s.sim.Update(o)
	default:
		err = s.sim.Delete(o)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func standaloneBubble(t *testing.T, n int, test func(s *stock)) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sim.Close)
		s := &stock{t: t, sim: sim, path: filepath.Join(t.TempDir(), "test.db")}
		for i := range n {
			s.write('+', fmt.Sprint("cm", i), "")
		}
		s.start(Options{})
		t.Cleanup(func() { s.end() })
		test(s)
	})
}

// TestStockInformer: client-go's informer wakes from the file, even without a server,
// resumes the watch, and is told of an expired version's repair as events.
func TestStockInformer(t *testing.T) {
	standaloneBubble(t, 3, func(s *stock) {
		after(time.Second)
		if told := s.take(); told != "+cm0 +cm1 +cm2" || !s.inf.HasSynced() {
			t.Errorf("first life: %s", told)
		}
		s.write('~', "cm1", "new")
		s.write('-', "cm2", "")
		after(time.Second)
		if told := s.take(); told != "-cm2 ~cm1" {
			t.Errorf("watched: %s", told)
		}
		s.end()

		s.write('+', "cm3", "")
		s.write('-', "cm0", "")
		s.sim.ResetRequests()
		if err := s.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		s.start(Options{})
		after(10 * time.Second)
		if told := s.take(); told != "+cm0 +cm1" || !s.inf.HasSynced() || s.lw.State().Phase != PhaseOffline {
			t.Errorf("offline: %s, %s", told, s.lw.State())
		}
		if err := s.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Minute)
		if told := s.take(); told != "+cm3 -cm0" || s.lw.State().Phase != PhaseLive {
			t.Errorf("resumed: %s, %s", told, s.lw.State())
		}
		if err := s.sim.Restart(kubesim.RestartOptions{}); err != nil {
			t.Fatal(err)
		}
		s.write('~', "cm3", "new")
		after(2 * time.Minute)
		if told := s.take(); told != "~cm3" {
			t.Errorf("repaired: %s", told)
		}
		for _, r := range s.sim.Requests() {
			if r.FullRead() && r.Start.Before(time.Now().Add(-2*time.Minute)) {
				t.Errorf("read in full before it had to be: %+v", r)
			}
		}
		if d := s.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestWrappedStandalone: a program that wraps the ListerWatcher, as for metrics, hides that
// lists are not streamed. client-go then asks for a stream, is refused, and lists.
func TestWrappedStandalone(t *testing.T) {
	standaloneBubble(t, 3, func(s *stock) {
		s.end()
		s.take()
		s.wrapped = true
		s.start(Options{})
		after(time.Second)
		if told := s.take(); told != "+cm0 +cm1 +cm2" || !s.inf.HasSynced() {
			t.Errorf("woken: %q, synced %v", told, s.inf.HasSynced())
		}
		s.write('-', "cm2", "")
		after(2 * time.Minute)
		if told := s.take(); told != "-cm2" {
			t.Errorf("watched: %q", told)
		}
		if err := s.sim.Restart(kubesim.RestartOptions{}); err != nil {
			t.Fatal(err)
		}
		s.write('~', "cm1", "new")
		after(2 * time.Minute)
		if told := s.take(); told != "~cm1" {
			t.Errorf("repaired: %q", told)
		}
		if d := s.differs(); d != "" {
			t.Error(d)
		}
		s.sim.ResetRequests()
		var status apierrors.APIStatus
		_, err := s.lw.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
		if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
			t.Errorf("a streamed list is answered with %v", err)
		}
		if n := len(s.sim.Requests()); n > 0 {
			t.Errorf("%d requests for lists that are refused", n)
		}
	})
}

// TestStockInformerStaged: after a repair that is too large to be told one by one, the
// informer lists the file again.
func TestStockInformerStaged(t *testing.T) {
	standaloneBubble(t, 200, func(s *stock) {
		after(time.Second)
		s.take()
		if err := s.sim.Restart(kubesim.RestartOptions{Hold: true}); err != nil {
			t.Fatal(err)
		}
		for i := range 150 {
			s.write('~', fmt.Sprint("cm", i), strings.Repeat("large", 100))
		}
		for i := 150; i < 180; i++ {
			s.write('-', fmt.Sprint("cm", i), "")
		}
		if err := s.sim.Resume(); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Minute)
		if d := s.differs(); d != "" {
			t.Error(d)
		}
		if told := s.take(); strings.Count(told, "-") != 30 {
			t.Error(told)
		}
	})
}

// TestStockInformerLives lives through random changes, faults and restarts.
func TestStockInformerLives(t *testing.T) {
	for seed := range uint64(5) {
		standaloneBubble(t, 20, func(s *stock) {
			r := rand.New(rand.NewPCG(seed, 1))
			have := map[string]bool{}
			for i := range 20 {
				have[fmt.Sprint("cm", i)] = true
			}
			for step := range 60 {
				for range r.IntN(20) {
					name := fmt.Sprint("cm", r.IntN(40))
					switch {
					case !have[name]:
						s.write('+', name, "")
						have[name] = true
					case r.IntN(3) == 0:
						s.write('-', name, "")
						delete(have, name)
					default:
						s.write('~', name, fmt.Sprint(step))
					}
				}
				switch r.IntN(8) {
				case 0:
					_ = s.sim.Restart(kubesim.RestartOptions{Down: time.Duration(r.IntN(90)) * time.Second,
						Initializing: r.IntN(3)})
				case 1:
					s.sim.DropConnections()
				case 2:
					s.sim.Mute()
				case 3:
					s.end()
					s.start(Options{})
				}
				after(time.Duration(r.IntN(100)) * time.Second)
			}
			after(15 * time.Minute)
			if d := s.differs(); d != "" {
				t.Errorf("seed %d: %s", seed, d)
			}
		})
	}
}
