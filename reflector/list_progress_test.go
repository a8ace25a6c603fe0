package reflector

import (
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestListProgress: State says how far a list has come, even if it continues the list of
// an earlier life. After its end State no longer mentions it.
func TestListProgress(t *testing.T) {
	const objects = 1000
	bubble(t, 0, kubesim.Options{}, Options{}, func(f *fixture) {
		f.slow(objects)
		seen := uint64(0)
		watched := func() (pages int) {
			for !f.queue.HasSynced() && pages < 3 {
				after(time.Second)
				st := f.State()
				if st.Listed < seen && st.Phase == PhaseRelisting && st.Listed > 0 {
					t.Errorf("%d objects, and %d before", st.Listed, seen)
				}
				if st.Listed <= seen || st.Remaining == nil {
					continue
				}
				if st.Listed+uint64(*st.Remaining) != objects || st.Phase != PhaseRelisting {
					t.Errorf("%d objects listed, %d left, %s", st.Listed, *st.Remaining, st)
				}
				seen, pages = st.Listed, pages+1
			}
			return pages
		}
		end := f.live()
		if watched() == 0 {
			t.Error("no progress is seen")
		}
		f.die(end)
		before := seen
		f.reflect()
		if watched() == 0 || seen <= before {
			t.Errorf("no progress is seen in the second life: %d objects, and %d before", seen, before)
		}
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		if st := f.State(); st.Listed != 0 || st.Remaining != nil {
			t.Errorf("after the list: %d objects, %v left", st.Listed, st.Remaining)
		}
	})
}
