package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
	"github.com/kubewake/kubewake/internal/lately"
)

// question says which objects of a type a command asks for.
type question struct {
	namespace string // "" for all
	selector  labels.Selector
	upheld    map[boltstore.Source]bool // see ofType
}

// ask makes the question for a namespace, or for all of them. A nil selector selects
// all. Sources of a cluster-scoped type cover every namespace.
func ask(namespace string, all bool, selector labels.Selector) question {
	if all {
		namespace = ""
	}
	if selector == nil {
		selector = labels.Everything()
	}
	return question{namespace: namespace, selector: selector}
}

// answer says which of a type's sources answer the question. There must be at least one
// source. Of those that cover the question, the one that the server confirmed last
// answers alone, since the records of two sources are of two moments.
//
// If no source covers all namespaces, there are several, one for each namespace in the
// file, and all of one cluster. note says what the answer lacks. A source that was never
// listed answers only if no other can.
func (q question) answer(sources []boltstore.State) (by []boltstore.State, note string, err error) {
	read := slices.DeleteFunc(slices.Clone(sources), func(st boltstore.State) bool { return !st.Synced })
	if by, note, err := q.answerOf(read); err == nil {
		return by, note, nil
	}
	return q.answerOf(sources)
}

func (q question) answerOf(sources []boltstore.State) (by []boltstore.State, note string, err error) {
	if by := covering(sources, q); len(by) > 0 {
		return []boltstore.State{q.latest(by)}, "", nil
	}
	if by, left := q.ofOneCluster(sources, q.selector); len(by) > 0 {
		return by, fmt.Sprintf("no source has all namespaces; showing the namespaces in the file: %s%s",
			namespacesOf(by), left), nil
	}
	// The sources answer a part of the question.
	if by, left := q.ofOneCluster(sources, nil); len(by) > 0 {
		return by, fmt.Sprintf("no source has all that you asked for, only: %s%s", textOf(by), left), nil
	}
	return nil, "", fmt.Errorf("no source has namespace %s of this type, only: %s", q.namespace, textOf(sources))
}

// ofOneCluster is byNamespace for the cluster of the source that was confirmed last. left
// names the sources of others. A source whose cluster is not known counts as of this one.
func (q question) ofOneCluster(sources []boltstore.State, selector labels.Selector) (
	by []boltstore.State, left string,
) {
	all := q.byNamespace(sources, selector)
	known := slices.DeleteFunc(slices.Clone(all), func(st boltstore.State) bool { return st.ClusterUID == "" })
	if len(known) == 0 {
		return all, ""
	}
	cluster := q.latest(known).ClusterUID
	foreign := func(st boltstore.State) bool { return st.ClusterUID != "" && st.ClusterUID != cluster }
	others := slices.DeleteFunc(all, func(st boltstore.State) bool { return !foreign(st) })
	if len(others) > 0 {
		left = "; left out, since they are of another cluster: " + textOf(others)
	}
	return q.byNamespace(slices.DeleteFunc(slices.Clone(sources), foreign), selector), left
}

// covering returns the sources that have all that the question asks for.
func covering(sources []boltstore.State, q question) []boltstore.State {
	return slices.DeleteFunc(slices.Clone(sources), func(st boltstore.State) bool { return !covers(st.Source, q) })
}

func covers(src boltstore.Source, q question) bool {
	return (src.Namespace == "" || src.Namespace == q.namespace) && src.FieldSelector == "" &&
		src.ShardSelector == "" &&
		kubeapi.Implies(q.selector, src.LabelSelector)
}

// byNamespace returns a source for each namespace of the question. It is the latest of
// those that cover the namespace with that selector, or of any if selector is nil. A
// source of all namespaces counts for each namespace, and is then the only one.
func (q question) byNamespace(sources []boltstore.State, selector labels.Selector) (by []boltstore.State) {
	of := map[string][]boltstore.State{}
	for _, st := range sources {
		ns := st.Source.Namespace
		if (q.namespace == "" || ns == "" || ns == q.namespace) &&
			(selector == nil || covers(st.Source, question{namespace: ns, selector: selector})) {
			of[ns] = append(of[ns], st)
		}
	}
	if all := of[""]; len(all) > 0 {
		return []boltstore.State{q.latest(all)}
	}
	for _, same := range of {
		by = append(by, q.latest(same))
	}
	slices.SortFunc(by, func(a, b boltstore.State) int {
		return strings.Compare(a.Source.Namespace, b.Source.Namespace)
	})
	return by
}

func textOf(sources []boltstore.State) string {
	names := make([]string, len(sources))
	for i, st := range sources {
		names[i] = st.Source.String()
	}
	return strings.Join(names, ", ")
}

func namespacesOf(by []boltstore.State) string {
	names := make([]string, len(by))
	for i, st := range by {
		names[i] = st.Source.Namespace
	}
	return strings.Join(names, ", ")
}

// latest returns the source that was confirmed last; there must be at least one. Listed
// sources come first, and whole objects before metadata. A source that the file's owner
// keeps up to date counts as confirmed now: the file notes that only now and then.
func (q question) latest(sources []boltstore.State) boltstore.State {
	truth := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return slices.MaxFunc(sources, func(a, b boltstore.State) int {
		return cmp.Or(
			truth(a.Synced)-truth(b.Synced),
			truth(a.Source.Form != boltstore.FormMetadata)-truth(b.Source.Form != boltstore.FormMetadata),
			truth(q.upheld[a.Source])-truth(q.upheld[b.Source]),
			lately.Compare(a, b),
			a.Claimed.Compare(b.Claimed),
			strings.Compare(b.Source.String(), a.Source.String()),
		)
	})
}

// within is the namespace to read from a source, "" for all. Callers still filter: the
// source's scope may be unknown.
func within(st boltstore.State, namespace string, all bool) string {
	if all || st.Scope != boltstore.ScopeNamespaced {
		return ""
	}
	return namespace
}
