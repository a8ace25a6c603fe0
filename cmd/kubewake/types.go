package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// builtIn has the groups of each type in client-go's scheme, by resource and by kind in
// lower case.
var builtIn = sync.OnceValue(func() map[string]map[string]bool {
	groups := map[string]map[string]bool{}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") ||
			strings.HasSuffix(gvk.Kind, "Options") {
			continue
		}
		plural, singular := meta.UnsafeGuessKindToResource(gvk)
		for _, name := range []string{plural.Resource, singular.Resource} {
			if groups[name] == nil {
				groups[name] = map[string]bool{}
			}
			groups[name][gvk.Group] = true
		}
	}
	return groups
})

// typed is a type as a user typed it: po, deployment, deployments.apps,
// deployments.v1.apps, services.serving.
type typed struct{ name, rest string }

func typedAs(arg string) typed {
	name, rest, _ := strings.Cut(strings.TrimSuffix(strings.ToLower(arg), "."), ".") // kubectl also accepts pods.v1.
	return typed{name, rest}
}

// names says whether the name is one of the source's type, whatever its group.
func (t typed) names(st boltstore.State) bool {
	if st.Source.Version == "" {
		return false // its meta cannot be read
	}
	return t.name == st.Source.Resource || t.name == strings.ToLower(st.Kind) || slices.Contains(st.Names, t.name) ||
		kubeapi.ShortNames[t.name] == groupOf(st)
}

// exactly says whether the given group, if any, is the source's.
func (t typed) exactly(st boltstore.State) bool {
	src := st.Source
	return t.rest == "" || t.rest == src.Group || t.version(st)
}

// version says whether the source's version is given.
func (t typed) version(st boltstore.State) bool {
	return t.rest == strings.TrimSuffix(st.Source.Version+"."+st.Source.Group, ".")
}

// beginning says whether the given group is the beginning of the source's, as in
// services.serving. For a built-in type the given group counts as whole:
// statefulsets.apps is not statefulsets.apps.kruise.io.
func (t typed) beginning(st boltstore.State) bool {
	short, ok := kubeapi.ShortNames[t.name]
	return !builtIn()[t.name][t.rest] && !(ok && short.Group == t.rest) && strings.HasPrefix(st.Source.Group, t.rest)
}

func groupOf(st boltstore.State) schema.GroupResource {
	return schema.GroupResource{Group: st.Source.Group, Resource: st.Source.Resource}
}

// inFile returns the sources of the one type that arg means, as kubectl chooses. A
// given group must match, otherwise a group that begins with it. Without a group the
// core type is meant, otherwise the only built-in one, otherwise the only one. If
// several types are left, the error names them.
func inFile(states []boltstore.State, arg string) ([]boltstore.State, error) {
	t := typedAs(arg)
	var found []boltstore.State
	for _, fits := range []func(boltstore.State) bool{t.exactly, t.beginning} {
		if found = slices.DeleteFunc(slices.Clone(states), func(st boltstore.State) bool {
			return !t.names(st) || !fits(st)
		}); len(found) > 0 {
			break
		}
	}
	isBuiltIn := func(g schema.GroupResource) bool { return builtIn()[g.Resource][g.Group] }
	for _, preferred := range []func(schema.GroupResource) bool{
		func(g schema.GroupResource) bool { return g.Group == "" },
		isBuiltIn,
		func(schema.GroupResource) bool { return true },
	} {
		of := slices.DeleteFunc(slices.Clone(found), func(st boltstore.State) bool { return !preferred(groupOf(st)) })
		switch types := typesIn(of); len(types) {
		case 0:
		case 1:
			return of, nil
		default:
			return nil, fmt.Errorf("%q means several types; add the group: %s", arg, strings.Join(types, ", "))
		}
	}
	return nil, nil
}

// notNamed returns the sources that are left for arg. If arg gives no version, it does
// not mean sources whose version another of the args gives. If no others are left,
// notNamed returns all, and ok is false: arg may mean a version that the file does not
// have yet.
func notNamed(sources []boltstore.State, arg string, args []string) (left []boltstore.State, ok bool) {
	if slices.ContainsFunc(sources, typedAs(arg).version) {
		return sources, true
	}
	left = slices.DeleteFunc(slices.Clone(sources), func(st boltstore.State) bool {
		return slices.ContainsFunc(args, func(a string) bool { return typedAs(a).names(st) && typedAs(a).version(st) })
	})
	if len(left) == 0 {
		return sources, false
	}
	return left, true
}

// elsewhere says whether a type may mean another one than g, which is in the file.
// Without a group, built-in types come first, and the core group's before all. A group
// that is only the beginning of g's may be a whole group of the server.
func elsewhere(arg string, g schema.GroupResource) bool {
	t := typedAs(arg)
	if t.rest != "" {
		_, group, _ := strings.Cut(t.rest, ".") // after a version
		return t.rest != g.Group && group != g.Group
	}
	if short, ok := kubeapi.ShortNames[t.name]; ok {
		return short != g
	}
	groups := builtIn()[t.name]
	return groups[""] && g.Group != "" || len(groups) > 0 && !groups[g.Group]
}

// typesIn returns the sources' types, sorted and each once, as a user can type them.
func typesIn(states []boltstore.State) (types []string) {
	for _, st := range states {
		if st.Source.Version != "" {
			types = append(types, groupOf(st).String())
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// resource is a type that the file or the server knows.
type resource struct {
	gvr schema.GroupVersionResource
	gvk schema.GroupVersionKind
	boltstore.Description
}

// known returns the type as its sources describe it: the version that was confirmed last
// with its columns, and scope and names from any source.
func known(sources []boltstore.State) (r resource, ok bool) {
	if len(sources) == 0 {
		return r, false
	}
	st := question{}.latest(sources)
	r.gvr = schema.GroupVersionResource{Group: st.Source.Group, Version: st.Source.Version,
		Resource: st.Source.Resource}
	r.gvk = schema.FromAPIVersionAndKind(st.APIVersion, st.Kind)
	r.Description = boltstore.Description{Scope: st.Scope, Names: st.Names, Categories: st.Categories,
		Columns: st.Columns}
	for _, other := range sources {
		if st.Kind == "" && r.Kind == "" && other.Source.Form != boltstore.FormMetadata {
			r.Kind = other.Kind
		}
		if r.Scope == "" {
			r.Scope = other.Scope
		}
		if len(r.Names) == 0 {
			r.Names = other.Names
		}
		if len(r.Categories) == 0 {
			r.Categories = other.Categories
		}
		if len(r.Columns) == 0 && other.Source.Version == st.Source.Version {
			r.Columns = other.Columns
		}
	}
	return r, true
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
	r := resource{gvr: m.Resource, gvk: gvk}
	r.Scope = boltstore.ScopeCluster
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		r.Scope = boltstore.ScopeNamespaced
	}
	return r, nil
}

// unknownType is the error for an unknown type.
func unknownType(arg, where string) error {
	return fmt.Errorf("%s has no resource type %q", where, arg)
}

func notInFile(typ, path string, states []boltstore.State) error {
	types := typesIn(states)
	if len(types) == 0 {
		return fmt.Errorf("%w; it has no types at all", unknownType(typ, path))
	}
	return fmt.Errorf("%w; it has: %s", unknownType(typ, path), strings.Join(types, ", "))
}
