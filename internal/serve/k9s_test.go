package serve

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// podsOfK9s returns a file with namespace a, pod a/p on node n1 and Secret a/s.
func podsOfK9s(t *testing.T) File {
	t.Helper()
	db := filetest.Open(t, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("namespaces"), &corev1.Namespace{}), "10",
		&corev1.Namespace{ObjectMeta: object("", "a", 1)})
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("pods"), &corev1.Pod{}), "10",
		&corev1.Pod{ObjectMeta: object("a", "p", 2), Spec: corev1.PodSpec{NodeName: "n1"}})
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("secrets"), &corev1.Secret{}), "10",
		&corev1.Secret{ObjectMeta: object("a", "s", 3)})
	return Own(db, apifile.Options{})
}

// TestStartOfK9s sends the requests that k9s sends until it shows pods, and when it shows
// other types and describes an object: with the link up, with it down, and without any
// link. No answer makes client-go wait and ask again.
func TestStartOfK9s(t *testing.T) {
	const (
		table      = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
		tables     = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
		proto      = kubeapi.MediaProto + ",application/json"
		aggregated = kubeapi.MediaDiscovery + ",application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
		// An informer lists in this way, and if that is refused with
		// "limit=500&resourceVersion=0".
		streamed = "?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=1&watch=true"
	)
	for _, mode := range []string{"live", "offline", "no link"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel() // watches last a second
			o := Options{File: podsOfK9s(t)}
			if mode != "no link" {
				c := newCluster(t)
				o.Link = c.link(t, LinkOptions{})
				c.setDown(mode == "offline")
			}
			s := start(t, o)
			// for objects that the file lacks
			passed := map[string]int{"live": 200, "offline": 503, "no link": 404}[mode]
			for _, tc := range []struct {
				what, path, accept string
				code               int
				text               string
			}{
				{"version", "/version?timeout=2m0s", "application/json, */*", 200, "gitVersion"},
				{"groups", "/apis?timeout=2m0s", aggregated, 200, "APIGroupDiscoveryList"},
				{"core groups", "/api?timeout=2m0s", aggregated, 200, `"pods"`},
				{"groups for metrics", "/apis", "", 200, "APIGroupList"},
				{"namespaces", "/api/v1/namespaces", "", 200, `"uid":"a"`},
				{"namespace", "/api/v1/namespaces/a", "", 200, `"uid":"a"`},
				{"pods", "/api/v1/pods?limit=500&resourceVersion=0", "", 200, `"uid":"ap"`},
				{"a watch of pods", "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=0", "", 200, `"ADDED"`},
				{"pods as a stream", "/api/v1/pods" + streamed, kubeapi.MediaJSON, 200,
					`"k8s.io/initial-events-end":"true"`},
				{"namespaces as a stream", "/api/v1/namespaces" + streamed, kubeapi.MediaJSON, 200, `"uid":"a"`},
				{"namespaces to choose from", "/api/v1/namespaces", proto, 200, "k8s\x00"},
				{"a pod to describe", "/api/v1/namespaces/a/pods/p", proto, 200, "k8s\x00"},
				{"its events", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.name%3Dp%2CinvolvedObject.uid%3Dap", proto, passed, ""},
				{"a table of many", "/api/v1/namespaces/a/pods?includeObject=Metadata", tables, 200,
					`"columnDefinitions"`},
				{"another table", "/apis/networking.k8s.io/v1/namespaces/a/ingresses?includeObject=Metadata", tables,
					passed, ""},
				{"a table", "/api/v1/namespaces/a/pods", table, 200, `"columnDefinitions"`},
				{"a table's watch", "/api/v1/namespaces/a/pods?watch=1&timeoutSeconds=1&resourceVersion=0", table,
					200, `"columnDefinitions"`},
				{"pods of a node", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", table, 200, `"uid":"ap"`},
				{"pods of another", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2", "", 200, `"items":[]`},
				{"nodes", "/api/v1/nodes", "", passed, ""},
				{"nodes as a stream", "/api/v1/nodes" + streamed, kubeapi.MediaJSON, passed, ""},
				{"nodes of a namespace", "/api/v1/namespaces/a/nodes?limit=500&resourceVersion=0", kubeapi.MediaJSON,
					passed, ""},
				{"definitions", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", table, passed, ""},
				{"metrics", "/apis/metrics.k8s.io/v1beta1/nodes", "", passed, ""},
				{"logs", "/api/v1/namespaces/a/pods/p/log?container=c&follow=true&tailLines=100&timestamps=true",
					"application/json, */*", passed, ""},
			} {
				if strings.HasSuffix(tc.what, "logs") && mode == "live" {
					continue // they last
				}
				a := s.get(tc.path, "Accept", tc.accept)
				if !a.has(tc.code, tc.text) {
					t.Errorf("%s: %d %s", tc.what, a.code, a.body)
				}
				if after := a.header.Get("Retry-After"); a.code == 503 && !strings.HasSuffix(after, "GMT") {
					t.Errorf("%s: Retry-After %q", tc.what, after)
				}
			}
			if mode == "live" {
				return // the server says what one may
			}
			for _, tc := range []struct {
				verb, resource, namespace string
				may                       bool
			}{
				{"list", "/namespaces", "", true}, {"list", "/pods", "", true}, {"watch", "/pods", "a", true},
				{"get", "/pods", "a", true},
				{"get", "/namespaces", "a", true},
				{"delete", "/pods", "a", false}, {"list", "/nodes", "", false},
				{"list", "apps/deployments", "a", false}, {"list", "/secrets", "a", false},
			} {
				body := mayIn(t, kubeapi.MediaProto, tc.verb, tc.resource, tc.namespace)
				a := send(t, s.socket, "POST", local+selfReviewPath+"?timeout=2m0s", strings.NewReader(body),
					"Content-Type", kubeapi.MediaProto, "Accept", proto)
				if !a.has(201, fmt.Sprintf(`"allowed":%t`, tc.may)) {
					t.Errorf("%s %s: %d %s", tc.verb, tc.resource, a.code, a.body)
				}
			}
			if a := send(t, s.socket, "POST", local+selfReviewPath,
				strings.NewReader(strings.Repeat("x", largestReview+1))); a.code != 413 {
				t.Errorf("a body that would take memory: %d %s", a.code, a.body)
			}
			if a := send(t, s.socket, "POST", local+selfReviewPath, strings.NewReader("{}")); a.code != 400 {
				t.Errorf("%d %s", a.code, a.body)
			}
		})
	}
}
