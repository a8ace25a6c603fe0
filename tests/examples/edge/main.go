// An agent on a device with an unreliable link. It keeps the device's settings, which are
// config maps with the device's label, in a file: it has them at once after a power cut,
// with and without a link, and says how old they are. It reports each applied change to
// the server, as an annotation of the device's node. Changes that it could not report
// without a link are reported when the link is back, even after restarts.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

var began = time.Now()

func main() {
	device := flag.String("device", os.Getenv("NODE_NAME"),
		"name of the device's node; $NODE_NAME, if set, is the default")
	path := flag.String("db", "edge.db", "the file")
	addr := flag.String("http", "", "serve /settings, /readyz and /healthz at this address")
	oldest := flag.Duration("oldest", 0, "the agent is ready while its settings are no older; 0 is any age")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *device, *path, *addr, *oldest); err != nil {
		klog.ErrorS(err, "The agent has ended")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

type agent struct {
	device   string
	client   kubernetes.Interface
	db       *boltstore.DB
	settings *informer.Informer
	oldest   time.Duration
}

func run(ctx context.Context, device, path, addr string, oldest time.Duration) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(reflector.WrapConfig(cfg))
	if err != nil {
		return err
	}
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		return err
	}
	mine := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.LabelSelector = "device=" + device })
	settings, err := informer.NewSharedIndexInformer(db, mine, &corev1.ConfigMap{}, informer.Options{MaxStaleness: -1})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	a := &agent{device, client, db, settings, oldest}
	fmt.Printf("%s after the start: %d settings, %s\n", time.Since(began).Round(time.Millisecond),
		len(settings.GetStore().List()), a.age())

	retry := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second)
	if _, err := settings.AddDurableHandler("report", a, informer.DurableOptions{RateLimiter: retry}); err != nil {
		return errors.Join(err, db.Close())
	}
	var served sync.WaitGroup
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return errors.Join(err, db.Close())
		}
		server := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second}
		context.AfterFunc(ctx, func() { _ = server.Close() }) // no answer takes long
		served.Go(func() { end(server.Serve(l)) })
	}
	settings.RunWithContext(ctx)
	end(nil)
	served.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return errors.Join(err, db.Close())
	}
	return db.Close()
}

// age says how old the settings are.
func (a *agent) age() string {
	age, known := a.settings.State().Age(time.Now())
	if !known {
		return "of unknown age"
	}
	return fmt.Sprintf("confirmed %s ago", age.Round(time.Second))
}

// HandleEvent reports a setting as it is now, or that it is gone. It is called until it returns
// nil, even after restarts.
func (a *agent) HandleEvent(ctx context.Context, e informer.Event) error {
	if e.Reset {
		return nil // all settings follow
	}
	_, name, err := cache.SplitMetaNamespaceKey(e.Key)
	if err != nil {
		return err
	}
	what := "removed"
	applied := map[string]any{"settings.example.com/" + name: nil} // removes the annotation
	if cm, ok := e.Object.(*corev1.ConfigMap); ok {
		what = "applied"
		applied["settings.example.com/"+name] = cm.Data["version"]
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": applied}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := a.client.CoreV1().Nodes().Patch(ctx, a.device, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		fmt.Printf("not reported, for now: %s %s\n", what, e.Key)
		return err
	}
	fmt.Printf("reported: %s %s\n", what, e.Key)
	return nil
}

// ServeHTTP answers from the file, with and without a link.
func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/settings":
		if age, known := a.settings.State().Age(time.Now()); known {
			w.Header().Set("Age", fmt.Sprint(int(age.Seconds())))
		}
		for _, key := range slices.Sorted(slices.Values(a.settings.GetStore().ListKeys())) {
			if cm, found, err := a.settings.GetStore().GetByKey(key); err == nil && found {
				fmt.Fprintln(w, key, cm.(*corev1.ConfigMap).Data["version"])
			}
		}
	case "/readyz":
		answer(w, informer.Ready(a.db, a.oldest, a.settings)(r))
	case "/healthz":
		answer(w, informer.Live(a.db)(r))
	default:
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
