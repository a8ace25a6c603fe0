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

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/listing"
)

// TestLearnsTheFlowSchema: a flow schema that an administrator has recreated is noted
// without a list. The cluster's identity is asked for once, and a check without a new
// result writes nothing.
func TestLearnsTheFlowSchema(t *testing.T) {
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprint("tells its UID ", tells), func(t *testing.T) {
			warm(t)
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				if !tells {
					sim.FailNext(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/kube-system") }, 1<<30,
						kubesim.Answer(apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", errors.New("no"))))
				}
				var schema atomic.Pointer[string]
				f := fixtureWith(t, sim, 4, clock.RealClock{}, Options{}, func(cfg *rest.Config) {
					cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
						return roundTripper(func(req *http.Request) (*http.Response, error) {
							resp, err := next.RoundTrip(req)
							if now := schema.Load(); err == nil && now != nil {
								resp.Header.Set(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, *now)
							}
							return resp, err
						})
					})
				}, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
				doubt := func() (asked int, wrote bool) {
					t.Helper()
					f.forget()
					changed, err := f.store.Changed()
					if err != nil {
						t.Fatal(err)
					}
					f.sim.DropConnections()
					after(time.Minute)
					for _, r := range f.sim.Requests() {
						if strings.HasSuffix(r.Path, "/kube-system") {
							asked++
						}
					}
					select {
					case <-changed:
						wrote = true
					default:
					}
					return asked, wrote
				}
				f.reflect()
				if !until(f.queue.HasSynced) {
					t.Fatal("not synced")
				}
				after(time.Hour) // bookmarks
				for _, name := range []string{"one", "two"} {
					schema.Store(&name)
					asked, _ := doubt()
					if st := f.store.State(); asked != 1 || st.FlowSchemaUID != name {
						t.Errorf("schema %s: asked %d times, noted %s", name, asked, st.FlowSchemaUID)
					}
					if asked, wrote := doubt(); asked > 0 || wrote {
						t.Errorf("schema %s again: asked %d times, wrote %v", name, asked, wrote)
					}
				}
				if n := len(f.State().Relists); n != 1 {
					t.Errorf("relists %v", f.State().Relists)
				}
			})
		})
	}
}

// TestNoteLearns: new facts about a server's identity are noted. Otherwise changes of its
// CA and its flow schema, years apart, would add up to another cluster.
func TestNoteLearns(t *testing.T) {
	bubble(t, 4, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		for i, by := range []listing.Server{
			{Address: "https://a", CA: "ca", FlowSchemaUID: "flow"},
			{Address: "https://a", CA: "second", FlowSchemaUID: "flow"},
			{Address: "https://a", CA: "second", FlowSchemaUID: "another"},
			{Address: "https://b", FlowSchemaUID: "another"},
			{Address: "https://b", FlowSchemaUID: "another", ClusterUID: "uid"},
			{Address: "https://b"},
		} {
			known := f.store.State()
			if i == 0 {
				known.ClusterUID = ""
			}
			f.cluster.note(known, by, true)
			st := f.store.State()
			if by.CA != "" && st.ServerCA != by.CA || by.FlowSchemaUID != "" && st.FlowSchemaUID != by.FlowSchemaUID || by.ClusterUID != "" && st.ClusterUID != by.ClusterUID || st.Server != by.Address {
				t.Errorf("%+v is noted as %s, CA %s, flow schema %s, UID %s", by, st.Server, st.ServerCA, st.FlowSchemaUID, st.ClusterUID)
			}
			changed, err := f.store.Changed()
			if err != nil {
				t.Fatal(err)
			}
			f.cluster.note(st, by, true)
			select {
			case <-changed:
				t.Errorf("%+v is written again", by)
			default:
			}
		}
	})
}
