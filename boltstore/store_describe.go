package boltstore

import (
	"cmp"
	"slices"
	"strings"
)

// Scope says whether objects of a type are in namespaces, in the words of a
// CustomResourceDefinition.
type Scope string

// Scopes of a type.
const (
	ScopeNamespaced Scope = "Namespaced"
	ScopeCluster    Scope = "Cluster"
)

// Description is what the server's discovery says of a source's type. A list does not
// say it.
type Description struct {
	Scope Scope
	// Names are the type's short names and its singular. The resource need not be among
	// them, nor the kind, which each object shows.
	Names []string
}

// Describe stores what discovery says of the type, so that it is known without a
// server. Empty fields leave the file's. Describe writes nothing if the file has it
// all.
func (s *Store) Describe(d Description) error {
	m := s.metaNow()
	if (d.Scope == "" || d.Scope == m.Scope) && (len(d.Names) == 0 || slices.Equal(d.Names, m.Names)) {
		return nil
	}
	return s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
		m.Scope = cmp.Or(d.Scope, m.Scope)
		if len(d.Names) > 0 {
			m.Names = slices.Clone(d.Names)
		}
		return nil
	}, nil)
}

// scope is what was described. Otherwise the source's namespace or the first object
// tells it. "" if neither does.
func (m *sourceMeta) scope(g genTx) Scope {
	switch key, ok := g.firstKey(); {
	case m.Scope != "":
		return m.Scope
	case m.Source.Namespace != "", ok && strings.Contains(key, "/"):
		return ScopeNamespaced
	case ok:
		return ScopeCluster
	}
	return ""
}

// firstKey is the key of the first object.
func (g genTx) firstKey() (key string, ok bool) {
	if g.Items == nil {
		return "", false
	}
	at, r := g.Items.Cursor().First()
	if at == nil {
		return "", false
	}
	key, err := keyOf(r)
	return key, err == nil
}
