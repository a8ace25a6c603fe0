package reflector

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/listing"
)

// clusterUID is the UID of the server's cluster.
func (f *fixture) clusterUID() string {
	f.t.Helper()
	all, _, err := f.sim.List(&corev1.Namespace{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range all {
		if o.GetName() == "kube-system" {
			return string(o.GetUID())
		}
	}
	return ""
}

// recreate makes another cluster answer, with an object of its own.
func (f *fixture) recreate(rv uint64) {
	f.t.Helper()
	after(time.Second)
	if err := f.sim.Recreate(rv); err != nil {
		f.t.Fatal(err)
	}
	f.create("theirs")
}

// ofTheCluster: the file's objects are the server's, the file knows the cluster, and
// nothing was told as deleted.
func (f *fixture) ofTheCluster() {
	f.t.Helper()
	if d := f.differs(); d != "" {
		f.t.Error(d)
	}
	if st := f.store.State(); st.ClusterUID != f.clusterUID() {
		f.t.Errorf("the file says it is of %s, it is of %s", st.ClusterUID, f.clusterUID())
	}
	if told := f.takeTold(); strings.Contains(told, "Deleted") {
		f.t.Errorf("told %q", told)
	}
}

func TestIsOther(t *testing.T) {
	known := boltstore.State{Server: "https://a", ServerCA: "ca", ClusterUID: "uid"}
	unknown := known
	unknown.ClusterUID = ""
	for _, c := range []struct {
		what  string
		known boltstore.State
		by    listing.Server
		want  bool
	}{
		{"another UID", known, listing.Server{Address: "https://a", CA: "ca", ClusterUID: "other"}, true},
		{"the same UID, all else another", known, listing.Server{Address: "https://b", CA: "cb", ClusterUID: "uid"},
			false},
		{"another address", known, listing.Server{Address: "https://b", CA: "ca"}, false},
		{"another CA", known, listing.Server{Address: "https://a", CA: "cb"}, false},
		{"another address and CA", known, listing.Server{Address: "https://b", CA: "cb"}, true},
		{"a UID where none was known, another address and CA", unknown,
			listing.Server{Address: "https://b", CA: "cb", ClusterUID: "uid"}, true},
		{"a UID where none was known", unknown, listing.Server{Address: "https://a", CA: "ca", ClusterUID: "uid"},
			false},
		{"nothing is known", boltstore.State{}, listing.Server{Address: "https://b", CA: "cb"}, false},
	} {
		if got := isOther(c.known, c.by); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestClusterWithoutNamespaces: a new cluster that has no kube-system yet is not
// taken for the one before it.
func TestClusterWithoutNamespaces(t *testing.T) {
	for name, rv := range map[string]uint64{"behind": 1, "ahead": 1_000_000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{InitialRV: 1000}, Options{}, func(f *fixture) {
				f.reflect()
				after(time.Minute)
				f.takeTold()
				f.sim.FailNext(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/kube-system") }, 1,
					kubesim.Answer(apierrors.NewNotFound(corev1.Resource("namespaces"), "kube-system")))
				f.recreate(rv)
				after(10 * time.Minute)
				f.ofTheCluster()
			})
		})
	}
}

// TestClusterThatDoesNotTell: a cluster that now refuses its UID is not taken for another
// one, and other facts about it are not noted beside the UID. As soon as it can be asked, it
// is known.
func TestClusterThatDoesNotTell(t *testing.T) {
	bubble(t, 5, kubesim.Options{InitialRV: 1000}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Minute)
		before := f.store.State()
		var refused atomic.Bool
		refused.Store(true)
		f.sim.FailNext(func(r *http.Request) bool {
			return refused.Load() && strings.HasSuffix(r.URL.Path, "/kube-system")
		}, 1<<30,
			kubesim.Answer(apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", errors.New("no"))))
		f.recreate(1_000_000)
		after(10 * time.Minute)
		if st := f.store.State(); st.ClusterUID != before.ClusterUID || st.ServerCA != before.ServerCA {
			t.Errorf("noted: %+v", st)
		}
		f.takeTold()
		refused.Store(false)
		f.sim.DropConnections()
		after(10 * time.Minute)
		f.ofTheCluster()
		if st := f.State(); st.Relists[ReasonCluster] != 1 {
			t.Errorf("relists %v", st.Relists)
		}
	})
}

// TestClusterWithinAList: a cluster is recreated while pages are read.
func TestClusterWithinAList(t *testing.T) {
	bubble(t, 9, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3}, func(f *fixture) {
		var pages atomic.Int64
		f.sim.OnRequest = func(r *http.Request) {
			if r.URL.Query().Get("limit") != "3" {
				return
			}
			if pages.Add(1) == 2 {
				f.recreateIn(r)
			}
		}
		f.reflect()
		after(10 * time.Minute)
		f.ofTheCluster()
	})
}

// TestUnseenClient: a client whose answers cannot be seen can list, even if the file
// knows the cluster from another client.
func TestUnseenClient(t *testing.T) {
	bubble(t, 4, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		f.restart()
		f.cluster.server, f.requests.server = "", ""
		f.link.expired()
		f.requests.lw = cache.ToListerWatcherWithContext(cache.NewListWatchFromClient(
			kubernetes.NewForConfigOrDie(f.sim.RESTConfig()).CoreV1().RESTClient(), "configmaps", "",
			fields.Everything()))
		f.watch()
		if st := f.State(); st.Relists[ReasonExpired] != 1 {
			t.Errorf("%s, relists %v", st, st.Relists)
		}
	})
}

// TestClusterBehindExpiry: an apparently expired version is another cluster's answer.
func TestClusterBehindExpiry(t *testing.T) {
	bubble(t, 4, kubesim.Options{InitialRV: 1000}, Options{}, func(f *fixture) {
		f.list()
		f.recreate(1_000_000)
		f.sim.FailNext(isWatch, 1, kubesim.Answer(apierrors.NewResourceExpired("too old resource version")))
		f.watch()
		f.ofTheCluster()
		if st := f.State(); st.Relists[ReasonCluster] != 1 || st.Relists[ReasonExpired] != 0 {
			t.Errorf("relists %v", st.Relists)
		}
	})
}

// TestEmptiedIsNotFresh: a confirmation of a cluster whose contents were removed says
// nothing about the next one.
func TestEmptiedIsNotFresh(t *testing.T) {
	bubble(t, 5, kubesim.Options{InitialRV: 1000}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Minute)
		f.sim.FailNext(func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/configmaps") && r.URL.Query().Get("limit") != "1" && !isWatch(r)
		}, 1<<30, kubesim.Answer(apierrors.NewInternalError(errors.New("no"))))
		f.recreate(1_000_000)
		after(5 * time.Minute)
		if f.store.State().Synced {
			t.Fatal("it was not emptied")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.WaitForFresh(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fresh, and nothing has been read: %v", err)
		}
		if age, ok := f.State().Age(time.Now()); ok {
			t.Errorf("age %s", age)
		}
	})
}

// TestRefusedByAnotherCluster: a cluster that refuses everything, since it does not know
// the caller, may be another one: nothing is purged.
func TestRefusedByAnotherCluster(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{PurgeDenied: true}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		f.takeTold()
		var refused atomic.Bool
		refused.Store(true)
		f.sim.FailNext(func(*http.Request) bool {
			return refused.Load()
		}, 1<<30, kubesim.Answer(apierrors.NewUnauthorized("who are you")))
		f.recreate(1_000_000)
		after(5 * time.Minute)
		if told := f.takeTold(); told != "" || len(f.store.ListKeys()) != 3 {
			t.Errorf("told %q", told)
		}
		refused.Store(false)
		after(5 * time.Minute)
		f.ofTheCluster()
	})
}

// TestClusterAskedInVain: a list whose pages must be of the same cluster goes on even if
// the question for that is not answered at once.
func TestClusterAskedInVain(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		broken := false
		f.sim.FailNext(func(r *http.Request) bool {
			page := r.URL.Query().Get("continue") != ""
			broken = broken || page
			return page
		}, 1, kubesim.Answer(apierrors.NewServiceUnavailable("starting")))
		f.sim.FailNext(func(r *http.Request) bool { return broken && strings.HasSuffix(r.URL.Path, "/kube-system") }, 2,
			kubesim.Answer(apierrors.NewServiceUnavailable("starting")))
		f.delete("cm3")
		f.sim.Compact()
		f.forget()
		f.sim.EndWatches(apierrors.NewResourceExpired("too old resource version"))
		after(time.Minute)
		if n := f.traffic(); n.firsts != 1 || f.State().Relists[ReasonExpired] != 1 || f.State().Phase != PhaseLive {
			t.Errorf("%+v, %s", n, f.State())
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestClusterBehindAudit: even if the link has not broken, a list may find another
// cluster over another connection.
func TestClusterBehindAudit(t *testing.T) {
	bubble(t, 9, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3, AuditEvery: time.Hour}, func(f *fixture) {
		var synced atomic.Bool
		var reads atomic.Int64
		f.sim.OnRequest = func(r *http.Request) {
			page, cluster := r.URL.Query().Get("limit") == "3", strings.HasSuffix(r.URL.Path, "/kube-system")
			if !synced.Load() || !page && !cluster || reads.Add(1) > 1 {
				return
			}
			f.recreateIn(r)
		}
		f.reflect()
		after(time.Second)
		f.takeTold()
		synced.Store(true)
		after(70 * time.Minute)
		if reads.Load() == 0 {
			t.Error("nothing was read")
		}
		f.ofTheCluster()
	})
}

// recreateIn makes the server another cluster, with one object, which cuts this request.
func (f *fixture) recreateIn(r *http.Request) {
	go func() {
		err := f.sim.Recreate(1_000_000)
		if err == nil {
			err = f.sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"}})
		}
		if err != nil {
			f.t.Error(err)
		}
	}()
	<-r.Context().Done()
}
