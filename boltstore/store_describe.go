package boltstore

import (
	"cmp"
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

// Description is what the server's discovery says of a source's type, and what the
// definition of a custom resource says of its tables. A list does not say it.
type Description struct {
	Scope Scope
	// Kind is the type's. It is needed for unstructured objects of which none has been
	// there yet: each one shows its kind.
	Kind string
	// Names are the type's short names and its singular. The resource need not be among
	// them, nor the kind.
	Names []string
	// Categories are groups of types that the type is in, as all.
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

// Describe stores what discovery says of the type, so that it is known without a
// server. Empty fields leave the file's. Describe writes nothing if the file has it
// all. Descriptions of columns are left out if they have more than 1 KiB together.
func (s *Store) Describe(d Description) error {
	d.Columns = shortened(d.Columns)
	if s.kind.Kind != "" {
		d.Kind = "" // the claim gives it
	}
	m := s.metaNow()
	if (d.Kind == "" || d.Kind == m.Kind) && (d.Scope == "" || d.Scope == m.Scope) && unchanged(m.Names, d.Names) && unchanged(m.Categories, d.Categories) && unchanged(m.Columns, d.Columns) {
		return nil
	}
	return s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
		if d.Kind != "" {
			m.APIVersion, m.Kind = schema.GroupVersion{Group: m.Source.Group, Version: m.Source.Version}.String(), d.Kind
		}
		m.Scope = cmp.Or(d.Scope, m.Scope)
		m.Names = given(d.Names, m.Names)
		m.Categories = given(d.Categories, m.Categories)
		m.Columns = given(d.Columns, m.Columns)
		return nil
	})
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

// unchanged says whether a new value is none, or the old one.
func unchanged[T comparable](old, new []T) bool { return len(new) == 0 || slices.Equal(old, new) }

// given is the new value, if there is one.
func given[T any](new, old []T) []T {
	if len(new) == 0 {
		return old
	}
	return slices.Clone(new)
}

// scope is what the source's namespace or the first object tells, since a custom resource
// may have been defined again after it was described. Without both it is what was
// described, "" if nothing was.
func (m *sourceMeta) scope(g genTx) Scope {
	switch key, ok := g.firstKey(); {
	case m.Source.Namespace != "", ok && strings.Contains(key, "/"):
		return ScopeNamespaced
	case ok:
		return ScopeCluster
	}
	return m.Scope
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
