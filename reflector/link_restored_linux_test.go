package reflector

import (
	"errors"
	"net/http"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestRestoredNotedLater: the disk is full when a restored server is noticed, and not any
// more when the process ends, before a list has succeeded. The next life knows it.
func TestRestoredNotedLater(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		then := f.sim.Revision()
		f.put("cm0", 10, 1) // is lost, and no number of objects shows that
		end := f.live()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Minute)
		var refused atomic.Bool
		refused.Store(true)
		f.sim.FailNext(func(r *http.Request) bool { return refused.Load() && r.URL.Query().Get("limit") == "3" }, 1<<30,
			kubesim.Answer(apierrors.NewInternalError(errors.New("starting"))))
		full := noWrites(t)
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		if !until(func() bool { return f.link.is(linkRestored) }) {
			t.Fatal("nobody has noticed")
		}
		full()
		after(time.Hour)
		f.die(end)
		for range 5 {
			f.other()
		}
		refused.Store(false)
		f.reflect()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Minute)
		if d := f.differs(); d != "" {
			t.Errorf("%s: %s", d, f.State())
		}
	})
}

// noWrites has all writes to files fail, as on a full disk, until the function that it
// returns is called.
func noWrites(t *testing.T) (over func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	set := func(l syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(syscall.Rlimit{Cur: 0, Max: was.Max})
	over = func() { set(was) }
	t.Cleanup(over)
	return over
}
