package informer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
)

// replacement is the file at the path while the open file is elsewhere.
type replacement struct {
	file  string        // where the open file is
	other *boltstore.DB // of the program that opened the path, nil if it has ended
	store *boltstore.Claimed
	keys  []string // that the other program has committed, nil if there was none
}

// moveFile is an operator moving the open file away. Another program may open the path,
// and may end.
func (m *model) moveFile(o op) {
	if m.elsewhere != nil || m.full {
		return
	}
	m.files++
	r := &replacement{file: fmt.Sprint(m.path, ".moved-", m.files)}
	if err := os.Rename(m.path, r.file); err != nil {
		m.t.Fatal(err)
	}
	m.elsewhere = r
	if o.n > 0 {
		m.otherBegins(r, 1+o.n)
	}
	if o.n&2 > 0 {
		m.otherEnds(r)
	}
	if err := m.db.AtPath(); !errors.Is(err, boltstore.ErrMoved) {
		m.t.Fatal("the file was moved: ", err)
	}
}

// otherBegins starts another program, which stores the same source in a file of its own.
func (m *model) otherBegins(r *replacement, objects int) {
	var err error
	if r.other, err = boltstore.Open(m.path, m.fileOptions()); err != nil {
		m.t.Fatal(err)
	}
	if r.store, err = r.other.Claim(boltstore.Claim{Source: modelSource, Example: &corev1.ConfigMap{}}); err != nil {
		m.t.Fatal(err)
	}
	for i := range objects {
		obj := cm(fmt.Sprint("other", i), "the other program's")
		if err := r.store.Add(obj); err != nil {
			m.t.Fatal(err)
		}
		r.keys = append(r.keys, "default/"+obj.Name)
	}
}

func (m *model) otherEnds(r *replacement) {
	if r.other == nil {
		return
	}
	if err := r.other.AtPath(); err != nil {
		m.t.Fatal("the other program's file: ", err)
	}
	r.store.Release()
	if err := r.other.Close(); err != nil {
		m.t.Fatal(err)
	}
	r.other = nil
}

// compactElsewhere compacts both files. The one that is not at its path stays as
// it is, and replaces nothing.
func (m *model) compactElsewhere(err error) {
	if !errors.Is(err, boltstore.ErrMoved) && !m.full {
		m.t.Fatal("a file that was moved is compacted: ", err)
	}
	if o := m.elsewhere.other; o != nil && !m.full {
		if _, err := o.Compact(m.t.Context(), nil); err != nil {
			m.t.Fatal("the other program: ", err)
		}
	}
}

// fileBack is the operator putting the file back. The file that came to its path
// meanwhile is as the other program has left it.
func (m *model) fileBack() {
	r := m.elsewhere
	if r == nil {
		return
	}
	m.elsewhere = nil
	m.otherEnds(r)
	if r.keys == nil {
		if _, err := os.Lstat(m.path); !errors.Is(err, fs.ErrNotExist) {
			m.t.Fatal("a file came to the path: ", err)
		}
	} else {
		m.otherHolds(r)
		if err := os.Remove(m.path); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := os.Rename(r.file, m.path); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) otherHolds(r *replacement) {
	o := m.fileOptions()
	o.ReadOnly = true
	db, err := boltstore.Open(m.path, o)
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	if r, err := db.Check(); err != nil || !r.Sound() {
		m.t.Fatalf("the other program's file is not sound: %+v %v", r, err)
	}
	s, err := db.View(modelSource)
	if err != nil {
		m.t.Fatal("the other program's file: ", err)
	}
	keys := s.ListKeys()
	slices.Sort(keys)
	if !slices.Equal(keys, r.keys) {
		m.t.Fatalf("the other program's file holds %q, and it stored %q", keys, r.keys)
	}
}
