package link

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// The test binary is also the program whose first list is interrupted: with these set it
// reads the config maps into the file until it asks for the page of that number, and then
// ends as ordered: killed, or in order.
const (
	envDB         = "LINK_CHILD_DB"
	envKubeconfig = "LINK_CHILD_KUBECONFIG"
	envAgent      = "LINK_CHILD_AGENT"
	envPage       = "LINK_CHILD_PAGE"
	envKilled     = "LINK_CHILD_KILLED"
)

const takeUpPage = 200 // objects

func TestMain(m *testing.M) {
	if db := os.Getenv(envDB); db != "" {
		if err := child(db); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(path string) error {
	last, err := strconv.Atoi(os.Getenv(envPage))
	if err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv(envKubeconfig))
	if err != nil {
		return err
	}
	cfg.QPS, cfg.UserAgent = -1, os.Getenv(envAgent)
	c, err := dynamic.NewForConfig(reflector.WrapConfig(cfg))
	if err != nil {
		return err
	}
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	client := c.Resource(configMaps).Namespace("default")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pages := 0
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(configMaps.GroupVersion().WithKind("ConfigMap"))
	inf, err := informer.NewSharedIndexInformer(db, &cache.ListWatch{
		ListWithContextFunc: func(asked context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit != 1 {
				pages++
			}
			if o.Limit != 1 && pages == last {
				if os.Getenv(envKilled) == "" {
					cancel()
				} else if self, err := os.FindProcess(os.Getpid()); err != nil || self.Kill() != nil {
					os.Exit(2)
				}
				<-asked.Done()
				return nil, asked.Err()
			}
			return client.List(asked, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}, example, informer.Options{Reflector: tuned(tuning.Reflector{PageSize: takeUpPage})})
	if err != nil {
		return err
	}
	tell := func(obj any) { fmt.Println("told", obj) }
	if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, obj any) {
		tell(obj)
	}, DeleteFunc: tell}); err != nil {
		return err
	}
	inf.RunWithContext(ctx)
	if n := len(inf.GetStore().ListKeys()); n > 0 || inf.HasSynced() {
		return fmt.Errorf("%d objects are served of a list that has not ended", n)
	}
	return db.Close()
}

// takenUp: a first list that is interrupted again and again, by kills and orderly ends,
// goes on in the next life of the process where it was, although objects are changed,
// deleted and created in between and the server forgets the list's version. At the end
// none of these changes is missing.
func takenUp(w *world) {
	const objects, life = 3000, 4
	began := time.Now()
	random := rand.New(rand.NewPCG(1, 2))
	name := func(i int) string { return fmt.Sprintf("taken%04d", i) }
	at := func(n int, do func(i int)) { // n at a time
		var wg sync.WaitGroup
		for from := range 8 {
			wg.Go(func() {
				for i := from; i < n; i += 8 {
					do(i)
				}
			})
		}
		wg.Wait()
	}
	at(objects, func(i int) { w.create(configMaps, name(i), strings.Repeat(fmt.Sprint(i), 50)) })
	w.Logf("%d objects made in %s", objects, time.Since(began).Round(time.Millisecond))

	path, kubeconfig := filepath.Join(w.TempDir(), "test.db"), w.s.Kubeconfig(w)
	began = time.Now()
	there := random.Perm(objects)
	for i, killed := range []string{"yes", "", "yes", ""} {
		cmd := exec.CommandContext(w.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envDB+"="+path, envKubeconfig+"="+kubeconfig,
			envAgent+"="+strings.ReplaceAll(w.Name(), " ", "_"),
			envPage+"="+strconv.Itoa(life), envKilled+"="+killed)
		out, err := cmd.CombinedOutput()
		if ended := cmd.ProcessState.ExitCode() == 0; ended == (killed != "") || strings.Contains(string(out), "told") {
			w.Fatalf("life %d: %v\n%s", i, err, out)
		}
		// In pages that have been read, and in others: gone, another of the same
		// name, changed, new.
		for _, i := range there[:20] {
			w.delete(configMaps, name(i))
		}
		for _, i := range there[20:30] {
			w.delete(configMaps, name(i))
			w.create(configMaps, name(i), "another")
		}
		for _, i := range there[30:40] {
			w.update(configMaps, name(i), fmt.Sprint("changed", i))
		}
		there = there[40:]
		for j := range 10 {
			w.create(configMaps, fmt.Sprintf("taken%04d-%d", random.IntN(objects), i*10+j), "new")
		}
		if i == 1 { // the continue token is of no use any more
			if err := w.s.Compact(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
	}
	m := w.mirrorAt(path, configMaps, apiserver.Admin,
		informer.Options{Reflector: tuned(tuning.Reflector{PageSize: takeUpPage})})
	m.until(time.Minute, m.inf.HasSynced, func() string { return "not synced: " + m.inf.State().String() })
	m.phase(reflector.PhaseLive)
	m.equal()
	lists, watches, full, first := w.asked(began)
	w.Logf("synced after %s, by %d questions, %d watches, %d pages: %v", time.Since(began).Round(time.Millisecond),
		lists, watches, full, m.inf.State().Relists)
	// The last page of each interrupted life is not sent. It is asked for while the page
	// before it comes, so neither that one nor the one before need be in the file yet.
	if n := len(m.inf.GetStore().ListKeys()); first != 1 || full > (n+takeUpPage-1)/takeUpPage+4*2 {
		w.Errorf("%d objects: %d pages, %d of them first ones", n, full, first)
	}
	if n := m.inf.State().Relists; len(n) != 1 || n[reflector.ReasonFirst] != 1 {
		w.Errorf("relists: %v", n)
	}
	m.toldAll("taken")
}

// toldAll waits until the handler knows exactly the cache's objects with names of a
// prefix, and checks the order of its calls: each object is added, changed and then
// deleted. A delete may come alone, if the object was deleted before its turn.
func (m *mirror) toldAll(prefix string) {
	m.Helper()
	want := map[string]bool{}
	for _, key := range m.inf.GetStore().ListKeys() {
		if _, name, _ := strings.Cut(key, "/"); strings.HasPrefix(name, prefix) {
			want[name] = true
		}
	}
	var wrong []string
	counts := map[byte]int{}
	m.until(time.Minute, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		known := map[string]bool{}
		wrong = nil
		clear(counts)
		for _, told := range m.told {
			what, name := told[0], told[1:]
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			counts[what]++
			if what != '-' && known[name] != (what == '~') {
				wrong = append(wrong, told)
			}
			known[name] = what != '-'
			if what == '-' {
				delete(known, name)
			}
		}
		for name := range want {
			if !known[name] {
				wrong = append(wrong, "not told of "+name)
			}
		}
		for name := range known {
			if !want[name] {
				wrong = append(wrong, "not told that gone is "+name)
			}
		}
		for name, rv := range m.last {
			obj, ok, err := m.inf.GetStore().GetByKey("default/" + name)
			if ok && (err != nil || obj.(*unstructured.Unstructured).GetResourceVersion() != rv) {
				wrong = append(wrong, "told last of an older "+name)
			}
		}
		return len(wrong) == 0
	}, func() string { slices.Sort(wrong); return fmt.Sprintf("%q", wrong) })
	m.Logf("told of %d added, %d changed, %d deleted", counts['+'], counts['~'], counts['-'])
}
