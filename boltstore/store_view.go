package boltstore

import (
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// View returns a Store that reads a source without claiming it, for tools that know
// nothing but the file. Typed objects come back in the Go type that client-go's scheme
// has for their kind, or in the claim's type if the claim has another codec than that type.
// What such a codec has stored can be viewed only while the source is claimed with it.
func (db *DB) View(src Source) (*Store, error) {
	var m *sourceMeta
	err := db.h.view(func(tx *bolt.Tx) (err error) {
		s, ok := db.h.source(tx, src.ID())
		if !ok {
			return ErrNoSource
		}
		if m, err = db.parsed.meta(s); err != nil {
			return err
		}
		m = m.clone()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: view %s in %s: %w", src, db.path, err)
	}
	c, err := db.claims.viewOf(m)
	if err != nil {
		return nil, fmt.Errorf("boltstore: view %s in %s: %w", src, db.path, err)
	}
	s, err := newSource(db, c)
	if err != nil {
		return nil, err
	}
	s.life.viewed, s.meta, s.form.transform = true, m, m.Transform
	s.form.lenient = true // a claim may store objects of another type or transform from now on
	s.coder.guessed = c.Codec == nil && s.form.typeHash != m.TypeHash
	s.form.typeHash = m.TypeHash // the view reads records of any program
	s.indices.indexers.fns[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	s.indices.find(m)
	return &Store{s}, nil
}

// find takes up the indices that the file, as of m, has for a view.
func (x *indices) find(m *sourceMeta) {
	x.change(func(fns cache.Indexers) {
		for name, im := range m.Indices {
			if im.Complete && fns[name] == nil {
				fns[name] = func(any) ([]string, error) {
					return nil, fmt.Errorf("boltstore: the function of index %s is not known here", name)
				}
			}
		}
	})
}

// viewOf finds the Go type and the codec of m's records. Types and codecs that only the
// program knows are found while the source is claimed.
func (cl *claims) viewOf(m *sourceMeta) (Claim, error) {
	example, err := exampleOf(m)
	s := cl.find(m.Source.ID())
	if s != nil && s.form.typeHash == m.TypeHash && (err != nil || !hasCodec(example, s.coder.codec.ID())) {
		u := &unstructured.Unstructured{} // in place of the claim's type
		u.SetGroupVersionKind(schema.FromAPIVersionAndKind(m.APIVersion, m.Kind))
		return Claim{Source: m.Source, Example: u, Codec: s.coder.codec}, nil
	}
	if _, id, own := strings.Cut(m.TypeHash, ofCodec); own && err == nil && m.Contents != contentsNone {
		err = fmt.Errorf("a codec of a program's own, %s, has stored its objects: they can be read while that "+
			"program runs, from its DB or over its socket", id)
	}
	return Claim{Source: m.Source, Example: example}, err
}

// hasCodec says whether objects of the example's type are stored by that codec by default.
func hasCodec(example runtime.Object, id byte) bool {
	c, err := codec.For(example)
	return err == nil && c.ID() == id
}

func exampleOf(m *sourceMeta) (runtime.Object, error) {
	gvk := schema.FromAPIVersionAndKind(m.APIVersion, m.Kind)
	switch m.Source.Form {
	case FormMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: m.APIVersion, Kind: m.Kind}}, nil
	case FormUnstructured:
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u, nil
	}
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("its objects are of a Go type that this program does not know, %s: %w", gvk, err)
	}
	return obj, nil
}
