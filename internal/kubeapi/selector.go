package kubeapi

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Implies says whether each object that matches q also matches a source's selector. It
// does if each requirement of that selector is one of q's.
func Implies(q labels.Selector, of string) bool {
	has, err := labels.Parse(of)
	if err != nil {
		return false
	}
	if q == nil {
		q = labels.Everything()
	}
	asked, _ := q.Requirements()
	needed, selectable := has.Requirements()
	if !selectable {
		return false
	}
	for _, r := range needed {
		if !slices.ContainsFunc(asked, func(a labels.Requirement) bool { return same(a, r) }) {
			return false
		}
	}
	return true
}

// same says whether two requirements mean the same: app=shop, app==shop and app in
// (shop) do.
func same(a, b labels.Requirement) bool {
	operator := func(r labels.Requirement) selection.Operator {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals:
			return selection.In
		case selection.NotEquals:
			return selection.NotIn
		}
		return r.Operator()
	}
	return a.Key() == b.Key() && operator(a) == operator(b) && a.Values().Equal(b.Values())
}
