package informer

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

// TestDiskFullInTheFirstSync: a source whose first list cannot be written is shown as
// failing, with the disk as the reason, and not as offline. It syncs once there is room.
func TestDiskFullInTheFirstSync(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var full atomic.Bool
		tuning.SetFile(&w.options, tuning.File{Op: func(op, _ string) error {
			if op == "transaction" && full.Load() {
				return syscall.ENOSPC
			}
			return nil
		}})
		w.create("a")
		w.create("b")
		var o Options
		// the first page is written before the second is read
		tuning.SetReflector(&o.Reflector, tuning.Reflector{PageSize: 1})
		l := w.live(o)
		full.Store(true)
		l.run()
		after(time.Minute)
		if st := l.inf.State(); st.Phase != reflector.PhaseFailing ||
			!strings.Contains(st.Reason, syscall.ENOSPC.Error()) {
			t.Error(st)
		}
		says(t, "full", Ready(l.db, 0), syscall.ENOSPC.Error())
		full.Store(false)
		l.synced().equal().end()
	})
}
