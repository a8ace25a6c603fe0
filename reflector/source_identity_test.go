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
			boltstore.Source{Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web", LabelSelector: "a=b", FieldSelector: "metadata.name=x", ShardSelector: "s"}},
		{"https://rancher/k8s/clusters/c-1/apis/apps/v1/deployments", boltstore.Source{Cluster: "k8s/clusters/c-1", Group: "apps", Version: "v1", Resource: "deployments"}},
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
