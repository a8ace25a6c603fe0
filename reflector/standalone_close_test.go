package reflector

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestStandaloneClosesOnFullDisk: a disk that takes no writes holds up neither a stopped
// stock informer nor Close.
func TestStandaloneClosesOnFullDisk(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{MaxSize: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() // reports what was not written
	client := kubernetes.NewForConfigOrDie(WrapConfig(sim.RESTConfig())).CoreV1().RESTClient()
	s, err := NewStandalone(db, cache.NewListWatchFromClient(client, "configmaps", "", fields.Everything()),
		&corev1.ConfigMap{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	inf := cache.NewSharedIndexInformer(s, &corev1.ConfigMap{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended, closed := make(chan struct{}), make(chan error, 1)
	go func() { defer close(ended); inf.RunWithContext(ctx) }()
	until := func(what string, ok func() bool) {
		t.Helper()
		deadline := time.After(time.Minute)
		for tick := time.NewTicker(time.Millisecond); !ok(); {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("not %s", what)
			}
		}
	}
	until("synced", inf.HasSynced)
	for i := range 400 {
		err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: fmt.Sprint("c", i)}, Data: map[string]string{"k": strings.Repeat("v", 20_000)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	// The disk takes next to nothing, the queue 2 MiB with the decoded objects. It is
	// full when many looks see no more of the 400.
	last, looks := 0, 0
	until("full", func() bool {
		rv, err := strconv.Atoi(s.queue.AcceptedVersion())
		if looks++; err != nil || rv != last {
			last, looks = rv, 0
		}
		return looks > 100 && rv > 10 && db.Err() != nil
	})
	if last > 100 {
		t.Fatalf("the queue has taken %d objects", last)
	}
	cancel()
	until("stopped", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	go func() { closed <- s.Close() }()
	until("closed", func() bool { return len(closed) == 1 })
	if err := <-closed; err == nil {
		t.Error("nothing is said of what could not be written")
	}
}
