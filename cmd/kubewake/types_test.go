package main

import (
	"testing"

	"github.com/kubewake/kubewake/boltstore"
)

func TestNamesOfTypes(t *testing.T) {
	deployments := boltstore.State{Kind: "Deployment",
		Source: boltstore.Source{Group: "apps", Version: "v1", Resource: "deployments"}}
	pods := boltstore.State{Kind: "Pod", Source: boltstore.Source{Version: "v1", Resource: "pods"}}
	for _, tc := range []struct {
		arg  string
		st   boltstore.State
		want bool
	}{
		{"deployments", deployments, true}, {"deployment", deployments, true}, {"deploy", deployments, true},
		{"Deployments", deployments, true},
		{"deployments.apps", deployments, true}, {"deployments.v1.apps", deployments, true},
		{"deploy.apps", deployments, true},
		{"deployments.extensions", deployments, false}, {"deployments.v2.apps", deployments, false},
		{"deployments.v1", deployments, false},
		{"pods", pods, true}, {"po", pods, true}, {"pod", pods, true}, {"pods.v1", pods, true},
		{"pods.v1.", pods, true}, {"pods.", pods, true}, {"pods.apps", pods, false}, {"p", pods, false},
		{"", pods, false},
	} {
		arg := typedAs(tc.arg)
		if got := arg.names(tc.st) && arg.exactly(tc.st); got != tc.want {
			t.Errorf("%q is %s: %v", tc.arg, tc.st.Source, got)
		}
	}
}
