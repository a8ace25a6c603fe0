package link

import (
	"fmt"
	"time"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// restarts: after a restart of the server, which makes every version too old,
// the client decodes what has changed and handlers are told of that. Both what
// the server encodes from Go types and custom resources are read as JSON here;
// the benchmark reads protobuf.
func restarts(w *world) { restartsWith(w, reflector.RepairAuto, "restart") }

// restartsMetadata: the same, with the metadata of all and then what has changed.
func restartsMetadata(w *world) { restartsWith(w, reflector.RepairMetadata, "partial") }

func restartsWith(w *world, repair reflector.Repair, prefix string) {
	if err := w.s.InstallWidgets(w.Context()); err != nil {
		w.Fatal(err)
	}
	for gvr := range kinds {
		name := func(i int) string { return fmt.Sprintf("%s%03d", prefix, i) }
		for i := range 300 {
			w.create(gvr, name(i), "before")
		}
		m := w.mirror(gvr, apiserver.Admin, informer.Options{PageSize: 100, Repair: repair})
		m.phase(reflector.Live)
		m.equal()
		m.mu.Lock()
		m.told = nil
		m.mu.Unlock()
		w.link.refuse(true)
		w.delete(gvr, name(7))
		w.delete(gvr, name(8))
		w.create(gvr, name(8), "another")
		w.create(gvr, prefix+"-new", "after")
		if err := w.s.RestartAPIServer(w.Context()); err != nil {
			w.Fatal(err)
		}
		m.decoded.Store(0)
		w.link.refuse(false)
		m.until(2*time.Minute, func() bool { return m.inf.State().Relists[reflector.ReasonExpired] == 1 }, func() string { return m.inf.State().String() })
		m.equal()
		m.expect(prefix, "+"+prefix+"-new", "-"+name(7), "-"+name(8), "+"+name(8))
		// Beside the two there may be the objects that come with the version
		// where the server does not take the selector.
		if n := m.decoded.Load(); n < 2 || n > 20 {
			w.Errorf("%s: %d objects decoded", gvr.Resource, n)
		}
	}
}
