package boltstore

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/devicetest"
)

// standing is a virtual machine that was stopped for a while: neither monotonic time nor
// the time since boot has noticed.
type standing struct {
	*devicetest.Device
	still time.Duration
}

func (s *standing) Uptime() time.Duration { return s.Device.Uptime() - s.still }

// TestAgeAfterAStop: a machine that was stopped does not make what its informer knows look
// young.
func TestAgeAfterAStop(t *testing.T) {
	const gone = 3 * time.Hour
	for name, still := range map[string]time.Duration{"stopped": gone, "running": 0} {
		t.Run(name, func(t *testing.T) {
			c := &standing{Device: devicetest.New(time.Now())}
			c.Set(time.Now(), true)
			db := openTest(t, testPath(t), Options{Clock: c})
			s := claimTest(t, db, Claim{})
			relist(t, s, "9", RelistOptions{}, []runtime.Object{configMap("a", "one", 1, nil)}, 10)
			s.SetFreshness(nil, func() (time.Duration, bool) { return time.Minute, true }) // by monotonic time
			c.Pass(gone)
			c.still = still
			want := time.Minute
			if still > 0 {
				want = gone
			}
			view, err := db.View(configMaps)
			must(t, err)
			states, err := db.States()
			must(t, err)
			for _, st := range append(states, view.State()) {
				if age := st.ConfirmedAge; age == nil || (*age-want).Abs() > 30*time.Second {
					t.Errorf("age %v, want %s", age, want)
				}
			}
		})
	}
}
