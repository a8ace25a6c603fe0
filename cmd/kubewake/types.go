package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// shortNames are those of kubectl for built-in types, for when there is no
// server to ask.
var shortNames = map[string]string{
	"cm": "configmaps", "cj": "cronjobs", "crd": "customresourcedefinitions", "deploy": "deployments", "ds": "daemonsets",
	"ep": "endpoints", "ev": "events", "hpa": "horizontalpodautoscalers", "ing": "ingresses", "limits": "limitranges",
	"netpol": "networkpolicies", "no": "nodes", "ns": "namespaces", "pc": "priorityclasses", "pdb": "poddisruptionbudgets",
	"po": "pods", "pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas", "rs": "replicasets",
	"sa": "serviceaccounts", "sc": "storageclasses", "sts": "statefulsets", "svc": "services",
}

// matches says whether a type as typed by a person, such as po, deployment,
// deployments.apps or deployments.v1.apps, is that source's.
func matches(arg string, st boltstore.State) bool {
	if st.Source.Version == "" {
		return false // what it is cannot be read
	}
	name, rest, _ := strings.Cut(strings.TrimSuffix(strings.ToLower(arg), "."), ".") // pods.v1. is kubectl's
	if long, ok := shortNames[name]; ok {
		name = long
	}
	if name != st.Source.Resource && name != strings.ToLower(st.Kind) {
		return false
	}
	return rest == "" || rest == st.Source.Group || rest == strings.TrimSuffix(st.Source.Version+"."+st.Source.Group, ".")
}

// inFile returns the sources of a type that the file holds.
func inFile(states []boltstore.State, arg string) []boltstore.State {
	return slices.DeleteFunc(slices.Clone(states), func(st boltstore.State) bool { return !matches(arg, st) })
}

// resource is what a type turned out to be.
type resource struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	namespaced bool
}

// fromServer asks the server what a type is.
func fromServer(mapper meta.RESTMapper, arg string) (resource, error) {
	full, group := schema.ParseResourceArg(strings.ToLower(arg))
	var gvr schema.GroupVersionResource
	var err error
	if full != nil {
		gvr, err = mapper.ResourceFor(*full)
	}
	if full == nil || err != nil {
		gvr, err = mapper.ResourceFor(group.WithVersion(""))
	}
	if err != nil {
		return resource{}, err
	}
	gvk, err := mapper.KindFor(gvr)
	if err != nil {
		return resource{}, err
	}
	m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return resource{}, err
	}
	return resource{gvr: m.Resource, gvk: gvk, namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace}, nil
}

// unknownType is the error for a type that nobody knows.
func unknownType(arg, where string) error {
	return fmt.Errorf("%s has no resource type %q", where, arg)
}
