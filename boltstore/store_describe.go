package boltstore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Scope says whether objects of a type are in namespaces, in the words of a
// CustomResourceDefinition.
type Scope string

// Scopes of a type.
const (
	ScopeNamespaced Scope = "Namespaced"
	ScopeCluster    Scope = "Cluster"
)

// Description describes a source's type, as the server's discovery does, and the tables
// of a custom resource, as its definition does. Lists do not say these things.
type Description struct {
	Scope Scope
	// Kind is the type's kind. It is needed if no unstructured object has been stored
	// yet; later the objects show it.
	Kind string
	// Names are the type's short names and its singular. The resource need not be among
	// them, nor the kind.
	Names []string
	// Categories are groups of types that have this type, such as all.
	Categories []string
	// Columns are the additionalPrinterColumns of a custom resource.
	Columns []Column
}

// Column is a column of a custom resource's tables, as the definition has it.
type Column struct {
	Name        string `msgpack:"name" json:"name"`
	Type        string `msgpack:"type" json:"type"`
	Format      string `msgpack:"format,omitempty" json:"format,omitempty"`
	Description string `msgpack:"description,omitempty" json:"description,omitempty"`
	JSONPath    string `msgpack:"jsonPath" json:"jsonPath"`
	Priority    int32  `msgpack:"priority,omitempty" json:"priority,omitempty"`
}

// Describe stores the description, so that it is known without a server. Empty texts and
// nil slices leave the file's; an empty slice that is not nil says that there are none.
// Describe writes nothing if the file has everything already. Descriptions of columns are
// left out if they have more than 1 KiB together. If d has only a scope, and the source is
// new, the source's next commit writes it. A store of [DB.View] cannot be described.
func (s *Store) Describe(d Description) error {
	d.Columns = shortened(d.Columns)
	if s.coder.kind.Kind != "" {
		d.Kind = "" // the claim gives it
	}
	m := s.metaNow()
	if (d.Kind == "" || d.Kind == m.Kind) && (d.Scope == "" || d.Scope == m.Scope) && unchanged(m.Names, d.Names) &&
		unchanged(m.Categories, d.Categories) && unchanged(m.Columns, d.Columns) {
		return nil
	}
	if s.life.viewed {
		return fmt.Errorf("boltstore: describe %s: this store is a view, which writes nothing; use the store of "+
			"the informer or the claim", s.name)
	}
	scopeOnly := d.Kind == "" && d.Names == nil && d.Categories == nil && d.Columns == nil
	if scopeOnly && s.noteWithList(func(m *sourceMeta) { m.Scope = d.Scope }) {
		return nil
	}
	err := s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
		if d.Kind != "" {
			m.APIVersion, m.Kind = schema.GroupVersion{Group: m.Source.Group, Version: m.Source.Version}.String(),
				d.Kind
		}
		m.Scope = cmp.Or(d.Scope, m.Scope)
		m.Names = given(d.Names, m.Names)
		m.Categories = given(d.Categories, m.Categories)
		m.Columns = given(d.Columns, m.Columns)
		return nil
	})
	if err != nil {
		return fmt.Errorf("boltstore: describe %s: %w", s.name, err)
	}
	return nil
}

// shortened leaves out the descriptions if they are long, since each commit writes them.
func shortened(columns []Column) []Column {
	n := 0
	for _, c := range columns {
		n += len(c.Description)
	}
	if n <= 1<<10 {
		return columns
	}
	columns = slices.Clone(columns)
	for i := range columns {
		columns[i].Description = ""
	}
	return columns
}

// unchanged says whether the new value is nil or the same as the old one.
func unchanged[T comparable](old, new []T) bool { return new == nil || slices.Equal(old, new) }

// given is the new value, or the old one if the new one is nil.
func given[T any](new, old []T) []T {
	if new == nil {
		return old
	}
	return slices.Clone(new)
}

// scope is the scope that the source's namespace or its first object shows, since a
// custom resource may have been defined again after it was described. Without both it is
// the described scope, "" if there is none. The error is of the first object.
func (m *sourceMeta) scope(g contentsTx) (Scope, error) {
	if m.Source.Namespace != "" {
		return ScopeNamespaced, nil
	}
	switch key, ok, err := g.firstKey(); {
	case err != nil:
		return m.Scope, err
	case ok && strings.Contains(key, "/"):
		return ScopeNamespaced, nil
	case ok:
		return ScopeCluster, nil
	}
	return m.Scope, nil
}

// firstKey is the key of the first object.
func (g contentsTx) firstKey() (key string, ok bool, err error) {
	r, ok, err := g.Items.First()
	if !ok || err != nil {
		return "", false, err
	}
	key, err = keyOf(r)
	return key, err == nil, nil
}
