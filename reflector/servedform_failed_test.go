package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFormListFails: when another form was noticed, it is listed as soon as lists
// succeed, however often one has failed: a webhook that is not ready yet, or a link that
// breaks. The watch goes on meanwhile.
func TestFormListFails(t *testing.T) {
	for _, untold := range []bool{false, true} {
		t.Run(fmt.Sprint("untold ", untold), func(t *testing.T) {
			warm(t)
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				var hidden, failing atomic.Bool
				var failed atomic.Int64
				hidden.Store(untold)
				sim.FailNext(func(r *http.Request) bool { return hidden.Load() && strings.HasPrefix(r.URL.Path, "/openapi/") }, 1<<30,
					func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
				sim.FailNext(func(r *http.Request) bool {
					return failing.Load() && strings.HasSuffix(r.URL.Path, "/widgets") && !isWatch(r) && r.URL.Query().Get("fieldSelector") == ""
				}, 1<<30, func(w http.ResponseWriter, r *http.Request) {
					failed.Add(1)
					kubesim.Answer(apierrors.NewInternalError(errors.New("conversion webhook failed")))(w, r)
				})
				f := customFixtureOver(t, sim, Options{clock: clock.RealClock{}}, func(string) {})
				f.reflect()
				after(time.Minute)
				hidden.Store(false)
				failing.Store(true)
				if err := sim.Reform(widget("first", "blue")); err != nil {
					t.Fatal(err)
				}
				sim.EndWatches(nil)
				after(time.Minute)
				if err := sim.Update(widget("third", "red")); err != nil {
					t.Fatal(err)
				}
				after(time.Minute)
				if got := f.colors(); got != "none none red" {
					t.Errorf("while lists fail the file has %s", got)
				}
				after(10 * time.Minute)
				if n := failed.Load(); n > 10 {
					t.Errorf("%d lists have failed", n)
				}
				failing.Store(false)
				after(10 * time.Minute)
				if got := f.colors(); got != "blue none red" {
					t.Errorf("the file has %s: %v", got, f.State().Relists)
				}
				if after(2 * time.Hour); f.State().Relists[ReasonForm]+f.State().Relists[ReasonNoVersion] != 1 {
					t.Errorf("%v", f.State().Relists)
				}
			})
		})
	}
}

// TestFormListComparesContent: a list for another form compares content, even if the
// definition may no longer be read when it begins.
func TestFormListComparesContent(t *testing.T) {
	f := newCustomFixture(t)
	f.list()
	asked := 0
	f.sim.FailNext(func(r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/customresourcedefinitions/") {
			asked++
		}
		return asked > 1
	}, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	if err := f.sim.Reconvert(widget("second", "blue")); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	if got := f.colors(); got != "none blue none" || f.State().Relists[ReasonForm] != 1 {
		t.Errorf("the file has %s: %v", got, f.State().Relists)
	}
}
