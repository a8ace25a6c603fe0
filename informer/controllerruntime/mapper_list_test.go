package controllerruntime

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/boltstore"
)

// TestKindNamedList: a kind whose name is that of another one's list has its own resource
// and scope, in whichever order the file has them.
func TestKindNamedList(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	state := func(kind, resource string, scope boltstore.Scope) boltstore.State {
		return boltstore.State{Source: boltstore.Source{Group: gv.Group, Version: gv.Version, Resource: resource},
			APIVersion: gv.String(), Kind: kind, Scope: scope}
	}
	allow, list := state("Allow", "allows", boltstore.ScopeNamespaced),
		state("AllowList", "allow-lists", boltstore.ScopeCluster)
	for _, states := range [][]boltstore.State{{allow, list}, {list, allow}} {
		m := mapperOf(states, "")
		for kind, want := range map[string]string{"Allow": "allows namespace", "AllowList": "allow-lists root",
			"AllowListList": "allowlistlists root"} {
			got, err := m.RESTMapping(gv.WithKind(kind).GroupKind(), gv.Version)
			if err != nil {
				t.Fatal(err)
			}
			if s := got.Resource.Resource + " " + string(got.Scope.Name()); s != want {
				t.Errorf("%s is %s, want %s", kind, s, want)
			}
		}
		for resource, want := range map[string]string{"allows": "Allow", "allow-lists": "AllowList"} {
			if got, err := m.KindFor(gv.WithResource(resource)); err != nil || got.Kind != want {
				t.Errorf("%s is %v, %v", resource, got, err)
			}
		}
	}
}
