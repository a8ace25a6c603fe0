package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/boltstore"
)

// in returns a source that was confirmed at that minute.
func in(kind, resource, namespace, selector string, minute int) boltstore.State {
	g := schema.ParseGroupResource(resource)
	return boltstore.State{Kind: kind, APIVersion: schema.GroupVersion{Group: g.Group, Version: "v1"}.String(),
		Synced: true, Confirmed: time.Unix(int64(minute*60), 0),
		Scope: boltstore.ScopeNamespaced,
		Source: boltstore.Source{Group: g.Group, Version: "v1", Resource: g.Resource, Namespace: namespace,
			LabelSelector: selector, Form: boltstore.FormUnstructured}}
}

func TestInFile(t *testing.T) {
	core, knative := in("Service", "services", "", "", 1), in("Service", "services.serving.knative.dev", "", "", 2)
	knative.Names = []string{"service", "ksvc"}
	events, newEvents := in("Event", "events", "", "", 1), in("Event", "events.events.k8s.io", "", "", 2)
	ingress, openshift := in("Ingress", "ingresses.networking.k8s.io", "", "", 1),
		in("Ingress", "ingresses.config.openshift.io", "", "", 2)
	one, two := in("Gadget", "gadgets.b.example.org", "", "", 1), in("Gadget", "gadgets.c.example.org", "", "", 2)
	kruise := in("StatefulSet", "statefulsets.apps.kruise.io", "", "", 1)
	unread := boltstore.State{Source: boltstore.Source{Resource: "services"}}
	all := []boltstore.State{knative, core, events, newEvents, openshift, ingress, one, two, unread}
	for _, tc := range []struct {
		arg    string
		states []boltstore.State
		want   string // the one source, or the types that an error names
	}{
		{"services", all, "services/v1"}, {"service", all, "services/v1"}, {"svc", all, "services/v1"},
		{"Services", all, "services/v1"},
		{"services.", all, "services/v1"}, {"services.v1.", all, "services/v1"},
		{"ksvc", all, "services.serving.knative.dev/v1"},
		{"services.serving.knative.dev", all, "services.serving.knative.dev/v1"},
		{"services.v1.serving.knative.dev", all, "services.serving.knative.dev/v1"},
		{"services.serving", all, "services.serving.knative.dev/v1"},
		{"services", []boltstore.State{knative}, "services.serving.knative.dev/v1"},
		{"svc", []boltstore.State{knative}, ""},
		{"services.apps", all, ""}, {"pods", all, ""}, {"", all, ""},
		{"events", all, "events/v1"}, {"ev", all, "events/v1"},
		{"events.events.k8s.io", all, "events.events.k8s.io/v1"},
		{"ingresses", all, "ingresses.networking.k8s.io/v1"}, {"ing", all, "ingresses.networking.k8s.io/v1"},
		{"ingresses.config", all, "ingresses.config.openshift.io/v1"},
		{"gadgets", all, "gadgets.b.example.org, gadgets.c.example.org"},
		{"gadget", all, "gadgets.b.example.org, gadgets.c.example.org"},
		{"statefulsets.apps", []boltstore.State{kruise}, ""}, {"sts.apps", []boltstore.State{kruise}, ""},
		{"statefulset.apps", []boltstore.State{kruise}, ""},
		{"statefulsets.apps.kruise.io", []boltstore.State{kruise}, "statefulsets.apps.kruise.io/v1"},
		{"statefulsets.apps.kruise", []boltstore.State{kruise}, "statefulsets.apps.kruise.io/v1"},
		{"gadgets.c", all, "gadgets.c.example.org/v1"},
		{"gadgets", []boltstore.State{two, core}, "gadgets.c.example.org/v1"},
	} {
		found, err := inFile(tc.states, tc.arg)
		var got []string
		for _, st := range found {
			got = append(got, strings.TrimSuffix(st.Source.String(), " (unstructured)"))
		}
		if err != nil {
			_, types, _ := strings.Cut(err.Error(), "add the group: ")
			got = []string{types}
		}
		if strings.Join(got, " and ") != tc.want {
			t.Errorf("%q of %d: %q %v, not %q", tc.arg, len(tc.states), got, err, tc.want)
		}
	}
}

// TestElsewhere: if the file has only another type with the name of a built-in one, the
// server is asked.
func TestElsewhere(t *testing.T) {
	for _, tc := range []struct {
		arg, group string
		want       bool
	}{
		{"services", "services", false}, {"services", "services.serving.knative.dev", true},
		{"Service", "services.serving.knative.dev", true},
		{"services.serving.knative.dev", "services.serving.knative.dev", false},
		{"services.serving", "services.serving.knative.dev", true},
		{"services.v1.serving.knative.dev", "services.serving.knative.dev", false}, {"services.v1", "services", false},
		{"statefulsets.apps", "statefulsets.apps.kruise.io", true}, {"statefulsets.apps", "statefulsets.apps", false},
		{"statefulsets.v1.apps", "statefulsets.apps", false},
		{"rc", "rainclouds.example.org", true},
		{"ksvc", "services.serving.knative.dev", false}, {"svc", "services", false},
		{"events", "events.events.k8s.io", true}, {"events.events.k8s.io", "events.events.k8s.io", false},
		{"events", "events", false},
		{"ingresses", "ingresses.config.openshift.io", true}, {"ingresses", "ingresses.networking.k8s.io", false},
		{"endpoints", "endpoints", false},
		{"deployments", "deployments.apps", false}, {"deploy", "deployments.apps", false},
		{"deploy", "deployments.extensions", true},
		{"gadgets", "gadgets.b.example.org", false},
	} {
		if got := elsewhere(tc.arg, schema.ParseGroupResource(tc.group)); got != tc.want {
			t.Errorf("%s where the file has %s: %v", tc.arg, tc.group, got)
		}
	}
}

func TestKnown(t *testing.T) {
	old, latest := in("Gadget", "gadgets.b.example.org", "", "", 1), in("Gadget", "gadgets.b.example.org", "", "", 2)
	old.Source.Version, old.Names, latest.Scope = "v1beta1", []string{"gd"}, ""
	old.Columns = []boltstore.Column{{Name: "Size"}} // may have another place in v1
	r, ok := known([]boltstore.State{old, latest})
	if !ok || r.gvr.Version != "v1" || r.gvk.Kind != "Gadget" || r.Scope != boltstore.ScopeNamespaced ||
		!slices.Equal(r.Names, old.Names) || len(r.Columns) > 0 {
		t.Errorf("%+v", r)
	}
	if _, ok := known(nil); ok {
		t.Error("known by nothing")
	}
}

// TestLatest: a known age decides, then the server's version, then the time by any
// clock.
func TestLatest(t *testing.T) {
	age := func(d time.Duration, st boltstore.State) boltstore.State { st.ConfirmedAge = &d; return st }
	at := func(rv string, st boltstore.State) boltstore.State { st.ResourceVersion = rv; return st }
	pods := func(minute int) boltstore.State { return in("Pod", "pods", "", "", minute) }
	for name, of := range map[string][2]boltstore.State{ // the second is the later one
		"ages":               {age(2*time.Hour, pods(9)), age(time.Hour, pods(1))},
		"an age and none":    {at("9", pods(9)), age(time.Hour, pods(1))},
		"versions":           {at("99", pods(9)), at("100", pods(1))},
		"one version":        {at("5", pods(1)), at("5", pods(2))},
		"versions of no use": {at("x", pods(1)), at("a", pods(2))},
	} {
		of[0].Source.Namespace, of[1].Source.Namespace = "old", "new"
		for _, states := range [][]boltstore.State{{of[0], of[1]}, {of[1], of[0]}} {
			if got := (question{}).latest(states); got.Source.Namespace != "new" {
				t.Errorf("%s: the older one", name)
			}
			upheld := map[boltstore.Source]bool{of[0].Source: true}
			if got := (question{upheld: upheld}).latest(states); got.Source.Namespace != "old" {
				t.Errorf("%s: not the one that is kept up to date", name)
			}
		}
	}
}

func TestAnswer(t *testing.T) {
	pods := func(namespace, selector string, minute int) boltstore.State {
		return in("Pod", "pods", namespace, selector, minute)
	}
	all, old := pods("", "", 5), pods("", "", 1)
	old.Source.Form = boltstore.FormTyped
	web, other, shop := pods("web", "", 7), pods("other", "", 3), pods("", "app=shop,tier in (a,b)", 9)
	metadata, unread, fields, sharded := pods("", "", 8), pods("", "", 0), pods("", "", 9), pods("", "", 9)
	metadata.Source.Form = boltstore.FormMetadata
	unread.Synced, unread.Source.Version = false, "v2"
	fields.Source.FieldSelector, sharded.Source.ShardSelector = "a=b", "x"
	node := in("Node", "nodes", "", "", 1)
	node.Scope = boltstore.ScopeCluster
	webShop := pods("web", "app=shop", 1)
	ofCluster := func(uid string, st boltstore.State) boltstore.State {
		st.ClusterUID = uid
		return st
	}
	once, now := ofCluster("a", other), ofCluster("b", web)
	webOnce, webOlder := ofCluster("a", pods("web", "app=shop", 8)), ofCluster("b", pods("web", "x=y", 2))
	for _, tc := range []struct {
		name, namespace, selector string
		of                        []boltstore.State
		want                      string // indices into of
		note                      string
	}{
		{"the one", "", "", []boltstore.State{all}, "0", ""},
		{"the last confirmed", "", "", []boltstore.State{old, all}, "1", ""},
		{"one of another namespace", "web", "", []boltstore.State{other, all}, "1", ""},
		{"one of the namespace, later", "web", "", []boltstore.State{all, web}, "1", ""},
		{"one of all, later", "other", "", []boltstore.State{all, other}, "0", ""},
		{"all namespaces", "", "", []boltstore.State{web, all}, "1", ""},
		{"a selector that is asked for", "", "tier in (b,a),app=shop,x=y", []boltstore.State{all, shop}, "1", ""},
		{"a selector that is written otherwise", "", "tier notin (c),tier in (a,b),app==shop",
			[]boltstore.State{all, shop}, "1", ""},
		{"other values", "", "tier in (a),app==shop", []boltstore.State{all, shop}, "0", ""},
		{"another operator", "", "tier in (a,b),app!=shop", []boltstore.State{all, shop}, "0", ""},
		{"a selector that is not", "", "app=shop", []boltstore.State{all, shop}, "0", ""},
		{"fields", "", "", []boltstore.State{fields, all, sharded}, "1", ""},
		{"whole objects", "", "", []boltstore.State{metadata, all}, "1", ""},
		{"metadata alone", "", "", []boltstore.State{metadata}, "0", ""},
		{"what has been read", "", "", []boltstore.State{unread, old}, "1", ""},
		{"what has not", "", "", []boltstore.State{unread}, "0", ""},
		{"a part that has been read", "", "", []boltstore.State{unread, web}, "1",
			"showing the namespaces in the file: web"},
		{"a part that has not", "other", "", []boltstore.State{unread, web}, "0", ""},
		{"of the cluster", "web", "", []boltstore.State{node}, "0", ""},
		{"put together", "", "", []boltstore.State{web, other, webShop}, "1 0",
			"showing the namespaces in the file: other, web"},
		{"put together, selected", "", "app=shop", []boltstore.State{other, webShop}, "0 1",
			"showing the namespaces in the file: other, web"},
		{"a part", "web", "", []boltstore.State{webShop, other}, "0",
			"only: pods/v1 -n web -l app=shop (unstructured)"},
		{"a part of all", "", "", []boltstore.State{shop, web}, "1", "showing the namespaces in the file: web"},
		{"two clusters", "", "", []boltstore.State{once, now}, "1",
			"showing the namespaces in the file: web; left out, since they are of another cluster: pods/v1 -n " +
				"other (unstructured)"},
		{"two clusters, one of them not known", "", "", []boltstore.State{other, now}, "0 1",
			"showing the namespaces in the file: other, web"},
		{"three sources of two clusters", "", "", []boltstore.State{once, now, pods("db", "", 8)}, "2 1",
			"left out, since they are of another cluster: pods/v1 -n other (unstructured)"},
		{"an older part of the same cluster", "", "x=y,app=shop",
			[]boltstore.State{webOnce, webOlder, ofCluster("b", pods("db", "", 9))}, "2 1",
			"left out, since they are of another cluster: pods/v1 -n web -l app=shop (unstructured)"},
		{"parts of two clusters", "", "", []boltstore.State{webOlder, ofCluster("a", pods("db", "x=y", 1))}, "0",
			"only: pods/v1 -n web -l x=y (unstructured); left out, since they are of another cluster: pods/v1 -n " +
				"db -l x=y (unstructured)"},
		{"nothing", "db", "", []boltstore.State{web, other}, "", ""},
	} {
		selector, err := labels.Parse(tc.selector)
		if err != nil {
			t.Fatal(err)
		}
		by, note, err := ask(tc.namespace, tc.namespace == "", selector).answer(tc.of)
		if (err != nil) != (tc.want == "") {
			t.Errorf("%s: %v", tc.name, err)
		}
		var got []string
		for _, st := range by {
			got = append(got, string(rune('0'+slices.IndexFunc(tc.of, func(o boltstore.State) bool {
				return o.Source == st.Source
			}))))
		}
		if strings.Join(got, " ") != tc.want || !strings.Contains(note, tc.note) || (note == "") != (tc.note == "") {
			t.Errorf("%s: %v, %q", tc.name, got, note)
		}
	}
}
