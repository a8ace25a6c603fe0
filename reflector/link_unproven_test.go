package reflector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestReadersWithoutBookmarks: over a far link repeated questions for a state that a server without
// bookmarks cannot confirm do not keep the watch closed, wait in vain at most once for
// each list, and cause no more lists than failures would. kube-apiserver sends none of
// events.
func TestReadersWithoutBookmarks(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		transportOf(t, f.client.Transport).speed.connected(time.Second) // over a near one: TestFreshWithoutBookmarks
		f.sent()
		var vain time.Duration
		fresh, unproven := 0, 0
		for i := range 60 {
			f.other()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			began := time.Now()
			switch err := f.WaitForFresh(ctx, 0); {
			case err == nil:
				fresh++
			case errors.Is(err, errUnproven):
				unproven++
				vain += time.Since(began)
			default:
				vain += time.Since(began)
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
		t.Logf("%d fresh, %d not proven, %s waited in vain, %d watches, %d full reads", fresh, unproven, vain, watches, full)
		if fresh < 10 || vain > 30*time.Second || watches > 130 || full > 30 {
			t.Errorf("%d fresh, %s waited in vain, %d watches, %d full reads", fresh, vain, watches, full)
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
