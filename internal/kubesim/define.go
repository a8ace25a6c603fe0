package kubesim

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
)

// Redefine deletes the definition of a custom resource and makes it again with another
// kind. Its objects are gone, running watches end, and watches from before are too old.
func (s *Server) Redefine(of schema.GroupResource, kind string) error {
	return s.redefine(of, func(r *Resource) { r.Kind = kind })
}

// Reversion is Redefine with another version and scope.
func (s *Server) Reversion(of schema.GroupResource, version string, namespaced bool) error {
	return s.redefine(of, func(r *Resource) { r.Version, r.Namespaced = version, namespaced })
}

// Recolumn is Redefine with other columns and short names.
func (s *Server) Recolumn(of schema.GroupResource, columns []printcolumns.Column, shortNames ...string) error {
	return s.redefine(of, func(r *Resource) { r.Columns, r.ShortNames = columns, shortNames })
}

func (s *Server) redefine(of schema.GroupResource, change func(*Resource)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.store.Load().all)
	at := slices.IndexFunc(all, func(t *table) bool { return t.GroupResource() == of && t.Custom })
	if at < 0 {
		return fmt.Errorf("kubesim: no custom resource %s", of)
	}
	s.rev++
	r := all[at].Resource
	change(&r)
	next := newTable(r, s.rev)
	next.generation = all[at].generation + 1
	all[at] = next
	s.store.Store(tablesOf(all))
	s.endStreams(streamEnd{})
	return nil
}
