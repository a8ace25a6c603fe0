package reflector

import (
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestLargeEventOverSlowLink: an event that takes longer to come than a watch may be quiet comes
// through, since its bytes show that the link lives.
func TestLargeEventOverSlowLink(t *testing.T) {
	for name, missed := range map[string]bool{"in a live watch": false, "in the short watch after an outage": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
				f.reflect()
				after(10 * time.Second)
				f.takeTold()
				if missed {
					if err := f.sim.RefuseConnections(true); err != nil {
						t.Fatal(err)
					}
				}
				f.sim.SetBandwidth(50_000 / 8)
				f.put("cm1", 800_000, 1) // more than two minutes
				if err := f.sim.RefuseConnections(false); err != nil {
					t.Fatal(err)
				}
				f.cost()
				after(5 * time.Minute)
				if told := f.takeTold(); told != "Updated cm1" || f.State().Phase != PhaseLive {
					t.Errorf("told %q, %s", told, f.State())
				}
				f.costs("in five minutes", kubesim.Cost{Questions: 3, Watches: 3, Others: 2, Bytes: 1_000_000})
			})
		})
	}
}
