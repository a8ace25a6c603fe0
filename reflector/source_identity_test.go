package reflector

import (
	"errors"
	"net/url"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
)

func TestSourceOfURL(t *testing.T) {
	for _, tc := range []struct {
		url  string
		want boltstore.Source // zero: unidentified
	}{
		{"https://h/api/v1/pods", boltstore.Source{Version: "v1", Resource: "pods"}},
		{"https://h/api/v1/namespaces", boltstore.Source{Version: "v1", Resource: "namespaces"}},
		{"https://h/api/v1/namespaces/web/pods?watch=true&resourceVersion=7&timeoutSeconds=5&allowWatchBookmarks=true&limit=5",
			boltstore.Source{Version: "v1", Resource: "pods", Namespace: "web"}},
		{"https://h/apis/apps/v1/namespaces/web/deployments?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&shardSelector=s",
			boltstore.Source{Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web",
				LabelSelector: "a=b", FieldSelector: "metadata.name=x", ShardSelector: "s"}},
		{"https://rancher/k8s/clusters/c-1/apis/apps/v1/deployments",
			boltstore.Source{Cluster: "k8s/clusters/c-1", Group: "apps", Version: "v1", Resource: "deployments"}},
		{"https://h/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/api/v1/namespaces/web/pods",
			boltstore.Source{Cluster: "apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy", Version: "v1",
				Resource: "pods", Namespace: "web"}},
		{"https://h/api/v1/namespaces/x/services/y/proxy/apis/apps/v1/deployments",
			boltstore.Source{Cluster: "api/v1/namespaces/x/services/y/proxy", Group: "apps", Version: "v1",
				Resource: "deployments"}},
		{"https://h/api/v1/namespaces/api/pods", boltstore.Source{Version: "v1", Resource: "pods", Namespace: "api"}},
		{"https://h/apis/example.com/v1/namespaces/apis/api",
			boltstore.Source{Group: "example.com", Version: "v1", Resource: "api", Namespace: "apis"}},
		{"https://h/api/v1/namespaces/api/pods/one", boltstore.Source{}},
		{"https://h/", boltstore.Source{}},
		{"https://h/api", boltstore.Source{}},
		{"https://h/api/v1", boltstore.Source{}},
		{"https://h/apis/apps/v1", boltstore.Source{}},
		{"https://h/api/v1/namespaces/web/pods/one", boltstore.Source{}},
		{"https://h/healthz", boltstore.Source{}},
	} {
		u, err := url.Parse(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		got, err := sourceOf(u)
		if got != tc.want || (tc.want == boltstore.Source{}) != errors.Is(err, ErrUnidentified) {
			t.Errorf("%s: %+v %v, want %+v", tc.url, got, err, tc.want)
		}
	}
}
