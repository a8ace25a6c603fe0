package link

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// restarts: after a restart of the server, which makes every version too old, the client
// decodes the changed objects and handlers are told these changes. Built-in types and
// custom resources are both read as JSON here; the benchmark reads protobuf.
func restarts(w *world) { restartsWith(w, false, "restart") }

// restartsMetadata: the same, with the metadata of all objects and then the changed ones.
func restartsMetadata(w *world) { restartsWith(w, true, "partial") }

func restartsWith(w *world, metadata bool, prefix string) {
	if err := w.s.InstallWidgets(w.Context()); err != nil {
		w.Fatal(err)
	}
	name := func(i int) string { return fmt.Sprintf("%s%03d", prefix, i) }
	mirrors := map[schema.GroupVersionResource]*mirror{}
	for gvr := range kinds {
		for i := range 300 {
			w.create(gvr, name(i), "before")
		}
		m := w.mirror(gvr, apiserver.Admin,
			informer.Options{Reflector: tuned(tuning.Reflector{PageSize: 100, Metadata: metadata})})
		m.phase(reflector.PhaseLive)
		m.equal()
		m.forget()
		mirrors[gvr] = m
	}
	w.link.refuse(true)
	for gvr := range kinds {
		w.delete(gvr, name(7))
		w.delete(gvr, name(8))
		w.create(gvr, name(8), "another")
		w.create(gvr, prefix+"-new", "after")
	}
	if err := w.s.RestartAPIServer(w.Context()); err != nil {
		w.Fatal(err)
	}
	for _, m := range mirrors {
		m.decoded.Store(0)
	}
	w.link.refuse(false)
	for gvr, m := range mirrors {
		m.until(2*time.Minute, func() bool {
			return m.inf.State().Relists[reflector.ReasonExpired] == 1
		}, func() string { return m.inf.State().String() })
		m.equal()
		m.expect(prefix, "+"+prefix+"-new", "-"+name(7), "-"+name(8), "+"+name(8))
		// Beside the two there may be the objects that come with the version
		// where the server does not take the selector.
		if n := m.decoded.Load(); n < 2 || n > 20 {
			w.Errorf("%s: %d objects decoded", gvr.Resource, n)
		}
	}
}

// recreated: a cluster that is made again at the same address, and whose versions have
// overtaken the file's by the time it is reached, is noticed at once. Nothing is told as
// deleted. It comes last, since it removes
// everything that the others made.
func recreated(w *world) {
	for i := range 20 {
		w.create(configMaps, fmt.Sprint("theirs", i), "before")
	}
	m := w.mirror(configMaps, apiserver.Admin, informer.Options{})
	m.phase(reflector.PhaseLive)
	m.equal()
	before, err := strconv.ParseUint(m.inf.LastSyncResourceVersion(), 10, 64)
	if err != nil {
		w.Fatal(err)
	}
	uid := m.inf.Store().State().ClusterUID
	w.link.refuse(true)
	if err := w.s.Recreate(w.Context(), before); err != nil {
		w.Fatal(err)
	}
	w.create(configMaps, "ours", "after")
	w.link.refuse(false)
	m.until(2*time.Minute, func() bool {
		return m.inf.State().Relists[reflector.ReasonCluster] == 1
	}, func() string { return fmt.Sprintf("%+v", m.inf.State()) })
	m.equal()
	m.phase(reflector.PhaseLive)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, told := range m.told {
		if told[0] == '-' {
			w.Errorf("told %s", told)
		}
	}
	if now := m.inf.Store().State().ClusterUID; uid == "" || now == "" || now == uid {
		w.Errorf("UID %q, before %q", now, uid)
	}
}
