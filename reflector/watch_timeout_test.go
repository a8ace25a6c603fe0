package reflector

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestAnyTimeoutsAndSizes: with any timeouts and sizes, a source reads all objects over a
// link that breaks, from a server that is busy at times, and sends nothing when there is
// nothing to ask.
func TestAnyTimeoutsAndSizes(t *testing.T) {
	cases := map[string]Options{}
	for _, d := range []time.Duration{-1, 1, math.MinInt64, math.MaxInt64} {
		cases[fmt.Sprint("quietTimeout ", int64(d))] = Options{quietTimeout: d}
		cases[fmt.Sprint("confirmTimeout ", int64(d))] = Options{confirmTimeout: d}
		cases[fmt.Sprint("PageSize ", int64(d))] = Options{pageSize: int64(d)}
		cases[fmt.Sprint("pageBytes ", int64(d))] = Options{pageBytes: int64(d)}
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, o, func(f *fixture) {
				f.reflect()
				after(5 * time.Second)
				same := func(when string) {
					t.Helper()
					if diff := f.differs(); diff != "" {
						t.Errorf("%s: %s", when, diff)
					}
				}
				same("read")
				f.create("new")
				after(time.Minute)
				same("watched")
				f.other()
				f.sim.FailNext(isList, 2, kubesim.Answer(apierrors.NewTooManyRequests("busy", 2)))
				f.sim.DropConnections()
				f.create("newer")
				after(time.Minute)
				same("busy")
				f.sim.FailNext(isList, 2, kubesim.Answer(apierrors.NewTooManyRequests("busy", 2)))
				f.sim.EndWatches(apierrors.NewResourceExpired("too old"))
				f.create("newest")
				after(5 * time.Minute)
				same("expired")
				for _, r := range f.sim.Requests() {
					if timeout := r.Query.Get("timeoutSeconds"); timeout != "" {
						if n, err := strconv.Atoi(timeout); err != nil || n < 1 || n > 24*60*60 {
							t.Errorf("a timeout of %s seconds", timeout)
						}
					}
				}
				f.sim.ResetRequests()
				after(time.Hour)
				if n := len(f.sim.Requests()); n > 30 {
					t.Errorf("%d requests in a quiet hour", n)
				}
			})
		})
	}
}

// TestQuietInALongConfirmation: a dead link is noticed within quietTimeout, also
// while a confirmation may take long.
func TestQuietInALongConfirmation(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{confirmTimeout: time.Hour}, func(f *fixture) {
		f.list()
		f.other()
		f.restart()
		f.reflect()
		after(10 * time.Second)
		if st := f.State(); st.Phase != PhaseCatchingUp {
			t.Fatal(st)
		}
		f.sim.Mute()
		f.create("missed")
		after(100 * time.Second)
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
	})
}
