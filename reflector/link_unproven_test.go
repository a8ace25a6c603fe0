package reflector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestReadersWithoutBookmarks: repeated questions for a state that a server without bookmarks
// cannot confirm do not keep the watch closed, and cause no more lists than failures would.
// kube-apiserver sends none of events. With small lists: TestFreshWithoutBookmarks.
func TestReadersWithoutBookmarks(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{Confirm: ConfirmBookmark}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		f.sent()
		fresh := 0
		for i := range 60 {
			f.other()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			if f.WaitForFresh(ctx, 0) == nil {
				fresh++
			}
			cancel()
			name := fmt.Sprint("during-", i)
			f.create(name)
			after(time.Second)
			if _, ok, err := f.store.GetByKey("default/" + name); !ok || err != nil {
				t.Errorf("after read %d: what was created a second ago is not there: %v", i, err)
			}
			after(5 * time.Second)
		}
		_, watches, full := f.sent()
		if fresh < 10 || watches > 130 || full > 30 {
			t.Errorf("%d fresh, %d watches, %d full reads", fresh, watches, full)
		}
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
	})
}

// TestFrequentAudits: lists that nothing needs do not keep the watch closed.
func TestFrequentAudits(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{AuditEvery: time.Minute}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		for i := range 120 {
			name := fmt.Sprint("during-", i)
			f.create(name)
			after(time.Second)
			if _, ok, err := f.store.GetByKey("default/" + name); !ok || err != nil {
				t.Errorf("what was created a second ago is not there: %d, %v", i, err)
			}
			after(10 * time.Second)
		}
		if n := f.State().Relists[ReasonAudit]; n < 15 || n > 44 { // each half a minute to a minute after the last
			t.Errorf("%d audits in 22 minutes", n)
		}
	})
}
