package reflector

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestWakeWithNothingMissed: it costs one question, one for the cluster, and one watch. A list
// of few objects is the question, unless bytes matter more; with ConfirmList it comes beside
// the watch. The served form is not asked for.
func TestWakeWithNothingMissed(t *testing.T) {
	for confirm, most := range map[Confirm]kubesim.Cost{
		ConfirmAuto:     {FullReads: 1, Watches: 1, Others: 1, Bytes: 1550},
		ConfirmBookmark: {Questions: 1, Watches: 1, Others: 1, Bytes: 680},
		ConfirmList:     {Questions: 2, FullReads: 1, Watches: 1, Others: 1, Bytes: 2400}, // of two connections
	} {
		f := newFixture(t, 5)
		f.proving.mode = confirm
		f.list()
		f.watch().Stop()
		f.restart()
		f.proving.mode = confirm
		f.forget()
		f.list()
		f.watch()
		f.costs("the wake", most)
	}
}

// TestCustomWakeWithNothingMissed: a custom resource's wake costs no more. Nothing shows that
// its versions move, so the list that asks must equal the file, and a relist must not compare
// more than versions. Otherwise everything is read.
func TestCustomWakeWithNothingMissed(t *testing.T) {
	for _, tc := range []struct {
		confirm Confirm
		untold  bool // the served form
		most    kubesim.Cost
	}{
		{confirm: ConfirmAuto, most: kubesim.Cost{FullReads: 1, Watches: 1, Others: 1, Bytes: 1400}},
		{confirm: ConfirmAuto, untold: true,
			most: kubesim.Cost{FullReads: 2, Watches: 1, Others: 2, Forms: 1, Bytes: 2600}},
		{confirm: ConfirmBookmark,
			most: kubesim.Cost{Questions: 1, FullReads: 1, Watches: 1, Others: 1, Forms: 3, Bytes: 2400}},
	} {
		f := newCustomFixture(t)
		f.sim.FailNext(func(r *http.Request) bool {
			return tc.untold && strings.HasPrefix(r.URL.Path, "/openapi/")
		}, 1<<30, kubesim.Answer(apierrors.NewNotFound(schema.GroupResource{}, "")))
		f.list()
		f.watch().Stop()
		f.restart()
		f.proving.mode = tc.confirm
		f.forget()
		f.list()
		f.watch().Stop()
		f.costs(fmt.Sprintf("the wake %+v", tc), tc.most)
		if full := f.State().Relists[ReasonNoVersion] > 0; full == (tc.most.Forms == 0) {
			t.Errorf("%+v: relists %v", tc, f.State().Relists)
		}
	}
}
