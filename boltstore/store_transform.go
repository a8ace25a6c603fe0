package boltstore

import (
	"strings"
	"sync/atomic"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/objmeta"
)

// form is the form of the objects that the program knows. s.mu guards it.
type form struct {
	s         *source
	typeHash  string // structure hash of the Go type
	transform string
	again     func(any) (any, error) // see TransformAgain
	lenient   bool                   // outdated objects are served
}

// SetTransformVersion names the transform of the objects to come, and its version.
// Objects stored under another one are not served until a relist has replaced them. ""
// means no transform.
func (s *Claimed) SetTransformVersion(v string) {
	s.mu.Lock()
	changed := s.form.transform != v
	s.form.transform = v
	s.mu.Unlock()
	if changed {
		s.memory.forget()
		s.memory.settle()
	}
}

// TransformAgain sets the transform for objects that were stored under an earlier one and
// are no longer served: the last known states of deleted objects, and objects before a
// change. Entry.Object and Entry.Previous apply it to copies of these, so they do not show
// more than the present transform leaves. They lack the parts that the earlier transform took away.
// Namespace and name stay, also if the transform changes them.
// fn is called from the goroutines of handlers.
func (s Feed) TransformAgain(fn func(obj any) (any, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.form.again = fn
}

// Outdated says whether the object after the change was stored under another Go type or
// transform, so that reads do not show it. Object applies the present transform to it. An
// object that a reader is to have as a whole must be read from the store.
func (e *Entry) Outdated() bool {
	e.s.mu.RLock()
	defer e.s.mu.RUnlock()
	return e.s.form.hides(e.s.meta) || !e.present && e.Seq < e.s.meta.Formed
}

// decode decodes a record of the entry. old says that it is not the object after the
// change, and may have been stored under an earlier transform.
func (e *Entry) decode(raw []byte, old bool) (any, error) {
	e.s.mu.RLock()
	again, m := e.s.form.again, e.s.meta
	earlier := again != nil && old && (e.s.form.hides(m) || e.Seq < m.Reformed)
	e.s.mu.RUnlock()
	if !earlier {
		return e.s.reader.decodeRaw(e.Key, raw)
	}
	_, r, err := e.s.coder.owner.ParseRecord(index.AppendKey(nil, e.Key), raw)
	if err != nil {
		return nil, err
	}
	obj, err := e.s.reader.decodeNew(e.Key, r) // the transform may write to it
	if err != nil {
		return nil, err
	}
	return asKnown(obj, again)
}

// asKnown applies the transform, and leaves the object the name by which handlers know it.
func asKnown(obj any, transform func(any) (any, error)) (any, error) {
	var namespace, name string
	known := objmeta.Of(obj)
	if known != nil {
		namespace, name = known.GetNamespace(), known.GetName()
	}
	obj, err := transform(obj)
	if m := objmeta.Of(obj); err == nil && known != nil && m != nil &&
		(m.GetNamespace() != namespace || m.GetName() != name) {
		m.SetNamespace(namespace)
		m.SetName(name)
	}
	return obj, err
}

// hides says whether reads show nothing of the contents. The caller holds mu.
func (f *form) hides(m *sourceMeta) bool {
	return m.Contents == contentsPartial || f.reason(m) != "" && !(f.lenient && f.readable(m))
}

func (f *form) hidden() bool {
	f.s.mu.RLock()
	defer f.s.mu.RUnlock()
	return f.hides(f.s.meta)
}

// readable says whether the claim's codec can read the records. A view has the file's.
func (f *form) readable(m *sourceMeta) bool {
	_, was, _ := strings.Cut(m.TypeHash, ofCodec)
	_, is, _ := strings.Cut(f.typeHash, ofCodec)
	return f.s.life.viewed || was == is
}

// hideUnreadable hides outdated contents after all if some of their objects cannot be decoded
// in the claim's Go type. They are no damage. Damaged objects say nothing about the others.
func (f *form) hideUnreadable() {
	if m := f.s.metaNow(); !f.lenient || m.Contents == contentsNone || m.TypeHash == f.typeHash {
		return
	}
	var unreadable atomic.Bool
	err := f.s.reader.read(func(_ *sourceMeta, _ sourceTx, g contentsTx) error {
		var raws []layout.Raw
		err := g.Items.Each(func(r layout.Raw) { raws = append(raws, r) })
		_ = f.s.reader.decodeEach(raws, func(_ int, key string, r *format.Record) error { // reads note damage
			_, err := f.s.reader.decodeNew(key, r)
			unreadable.CompareAndSwap(false, err != nil)
			return nil
		})
		return err
	})
	if err == nil && unreadable.Load() { // otherwise the next read notes why
		f.s.mu.Lock()
		f.lenient = false
		f.s.mu.Unlock()
	}
}

// ofCodec precedes the ID of a codec of the program's own in a type hash.
const ofCodec = " codec "
