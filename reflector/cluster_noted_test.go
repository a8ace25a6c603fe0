package reflector

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/listing"
)

// TestNotedInPart: a cluster that does not state its UID is not noted beside the UID of
// the cluster noted before it.
func TestNotedInPart(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		f.interrupted(1)
		known := f.store.State()
		if known.ClusterUID == "" {
			t.Fatal("the cluster was not noted")
		}
		by := listing.Server{Address: "https://b", CA: "cb"}
		known.ServerCA = "ca"
		if !isOther(known, by) {
			t.Fatal("it counts as the same")
		}
		f.cluster.note(finding{by: by, other: true, sure: true})
		if st := f.store.State(); st.ClusterUID != "" || st.Server != by.Address || st.ServerCA != by.CA {
			t.Errorf("noted: UID %q, %s, CA %q", st.ClusterUID, st.Server, st.ServerCA)
		}
	})
}

// TestThirdClusterBeforeTheList: after another cluster was found, a waiting list is of a
// third one by the time it begins. The file knows whose list it is.
func TestThirdClusterBeforeTheList(t *testing.T) {
	bubble(t, 6, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3}, func(f *fixture) {
		f.reflect()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		for range 6 { // so that the next list waits for half a minute
			f.pace.ended()
		}
		f.recreate(2_000_000)
		for f.store.Upstream.Epoch() < 1 {
			after(time.Millisecond)
		}
		if f.store.State().Synced {
			t.Fatal("the list did not wait")
		}
		if err := f.sim.Recreate(3_000_000); err != nil {
			t.Fatal(err)
		}
		f.create("third")
		after(time.Hour)
		f.ofTheCluster()
	})
}

// TestAnotherClusterBehindARetry: client-go repeats a request if its connection breaks.
// The first page may then be another cluster's than the one that was identified before
// it.
func TestAnotherClusterBehindARetry(t *testing.T) {
	bubble(t, 6, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3}, func(f *fixture) {
		var breaks atomic.Bool
		breaks.Store(true)
		f.sim.FailNext(func(r *http.Request) bool {
			return breaks.Load() && r.URL.Query().Get("limit") == "3"
		}, 1<<30, nil)
		f.reflect()
		after(4500 * time.Millisecond)
		f.recreate(1_000_000)
		breaks.Store(false)
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		f.ofTheCluster()
	})
}
