//go:build linux

package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/bench/measured"
)

// tenantEnv holds the spec, as JSON, of TestTenant's program: this test binary.
const tenantEnv = "KUBEWAKE_TENANT_SPEC"

type tenantSpec struct {
	Host, DB string
	Objects  int
}

// tenantReport is what the program reports at its end.
type tenantReport struct {
	Told    map[string]latency // by handler
	Pending uint64             // keys of the handler that fails
	Failing int
	Refused uint64 // calls
	Anon    int64  // at most, in bytes, as the next ones
	Size    int64
	Objects int64 // in the file
	Journal int64
}

// latency is how long after their write changes were told.
type latency struct {
	N           int
	Median, P99 time.Duration
}

func (r tenantReport) String() string {
	text := ""
	for _, name := range []string{"fails", "never fails"} {
		l := r.Told[name]
		text += fmt.Sprintf("the handler that %s is told %d changes, median %v, p99 %v; ", name, l.N,
			l.Median.Round(100*time.Microsecond), l.P99.Round(100*time.Microsecond))
	}
	return text + fmt.Sprintf("%d keys fail, %d calls were refused; %s of anonymous memory, a file of %s",
		r.Failing, r.Refused, mb(r.Anon), mb(r.Size))
}

// tenantHandler measures when it is told changes.
type tenantHandler struct {
	refuses bool // the tenant's keys

	mu   sync.Mutex
	told []time.Duration
}

func (h *tenantHandler) HandleEvent(_ context.Context, e informer.Event) error {
	if e.Reset {
		return nil
	}
	if h.refuses && slotOf(e.Key)%tenantEvery == 0 {
		return errNotNow
	}
	at, err := strconv.ParseInt(e.Object.(*corev1.ConfigMap).Data["at"], 10, 64)
	if err != nil || at == 0 {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, time.Since(time.Unix(0, at)))
	return nil
}

func (h *tenantHandler) latency() (l latency) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.told)
	if l.N = len(h.told); l.N > 0 {
		l.Median, l.P99 = h.told[l.N/2], h.told[l.N*99/100]
	}
	return l
}

// runTenant is the program: an informer with two durable handlers, of which one refuses the
// tenant's keys. It reports once all keys have been told, and at the version that it is sent.
func runTenant(text string) error {
	var s tenantSpec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	memory := measured.StartSampler()
	// the default where there is no memory limit
	db, err := boltstore.Open(s.DB, boltstore.Options{ObjectMemory: 8 << 20})
	if err != nil {
		return err
	}
	const proto = "application/vnd.kubernetes.protobuf"
	cfg := &rest.Config{Host: s.Host, QPS: -1}
	cfg.ContentType, cfg.AcceptContentTypes = proto, proto+",application/json"
	client, err := kubernetes.NewForConfig(reflector.WrapConfig(cfg))
	if err != nil {
		return err
	}
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "", fields.Everything())
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, informer.Options{})
	if err != nil {
		return err
	}
	handlers := map[string]*tenantHandler{"fails": {refuses: true}, "never fails": {}}
	var synced []cache.DoneChecker
	for name, h := range handlers {
		reg, err := inf.AddDurableHandler(name, h, informer.DurableOptions{})
		if err != nil {
			return err
		}
		synced = append(synced, reg.HasSyncedChecker())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	for _, checker := range synced {
		<-checker.Done()
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(tenantReport{Anon: memory.Read().PeakAnon}); err != nil {
		return err
	}
	var version uint64
	if err := json.NewDecoder(os.Stdin).Decode(&version); err != nil {
		return err
	}
	lag := settled(inf, version, uint64(s.Objects/tenantEvery))
	st := inf.Store().State()
	r := tenantReport{Told: map[string]latency{}, Pending: lag.Pending, Failing: lag.Failing, Refused: lag.Failures,
		Anon: memory.Read().PeakAnon, Size: db.Size(), Objects: int64(st.Bytes), Journal: int64(st.JournalBytes)}
	for name, h := range handlers {
		r.Told[name] = h.latency()
	}
	cancel()
	running.Wait()
	return errors.Join(out.Encode(r), db.Close())
}

// settled waits until the version has come, and only the keys that fail are pending, for a
// minute at most. It returns the lag of the handler that fails.
func settled(inf *informer.Informer, version, keys uint64) (lag informer.Lag) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		others := uint64(0)
		for _, l := range inf.Lags() {
			if others += l.Pending; l.Handler == "fails" {
				lag = l
				others -= l.Pending
			}
		}
		if versionOf(inf.Store().State().ResourceVersion) >= version && lag.Pending == keys && others == 0 {
			break
		}
	}
	return lag
}
