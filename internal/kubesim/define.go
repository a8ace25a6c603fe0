package kubesim

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Redefine deletes the definition of a custom resource and makes it again with another
// kind. Its objects are gone, running watches end, and watches from before are too old.
func (s *Server) Redefine(of schema.GroupResource, kind string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.store.Load().all)
	at := slices.IndexFunc(all, func(t *table) bool { return t.GroupResource() == of && t.Custom })
	if at < 0 {
		return fmt.Errorf("kubesim: no custom resource %s", of)
	}
	s.rev++
	r := all[at].Resource
	r.Kind = kind
	all[at] = newTable(r, s.rev)
	s.store.Store(tablesOf(all))
	s.endStreams(streamEnd{})
	return nil
}
