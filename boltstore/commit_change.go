package boltstore

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/internal/objmeta"
)

// Change is one change to a source, made ready to be stored by [Feed.Prepare]. The
// user's functions have been called.
type Change struct {
	typ     cache.DeltaType // Added (or updated), or Deleted
	key     string
	obj     any // what the handlers get; nil for a delete whose final state is unknown
	rv, uid string
	set     *indexSet // the indices of values
	values  []format.IndexValues
	payload []byte // nil for a delete whose final state is unknown
	whole   []byte // format.HeadRoom bytes and then the payload; nil once the payload is packed
	quiet   bool   // only the index values differ: handlers are not told
	size    int    // of the payload before packing; 0: it is not packed

	failed []string // the indices whose functions failed
	// unstored is why the object cannot be stored. The change then stores a note of it.
	unstored string
	nameless bool // the key is not known either
	unknown  bool // see TellUnknown
	hide     bool // the object as the file has it must not be served

	only *recordID // unless nil, the change is dropped if another record is at the key
}

// TellUnknown tells handlers of the delete even if the file does not hold its object. The
// caller knows that the delete has not come before. It changes nothing for a delete
// without a final state.
func (c *Change) TellUnknown() { c.unknown = c.typ == cache.Deleted && c.payload != nil }

// Size is how much the change counts in a batch, in bytes: its payload and key, and
// smallObject.
func (c *Change) Size() int { return len(c.payload) + len(c.key) + smallObject }

// Memory is about how much memory the change takes, in bytes: the payload and the decoded
// object.
func (c *Change) Memory() int {
	n := len(c.payload) + len(c.key) + smallObject
	if c.obj != nil {
		n += decodedSize(max(c.size, len(c.payload)))
	}
	return n
}

// decodedSize is about how much memory a decoded object takes, in bytes.
func decodedSize(encoded int) int { return 3*encoded + smallObject }

// smallObject is about how much memory the smallest decoded object takes, in bytes.
const smallObject = 1500

// Prepare computes the key and the index values of obj and encodes it. typ is
// cache.Deleted or any other delta type that carries an object. The caller must not
// modify the object afterwards. An error says why this object cannot be stored. An
// object whose index function fails is stored without values in that index.
func (s Feed) Prepare(typ cache.DeltaType, obj any) (*Change, error) {
	c, err := s.writer.identify(typ, obj)
	if err != nil {
		return nil, err
	}
	return s.writer.finish(c)
}

// PrepareGone is Prepare for the delete of an object whose final state cannot be stored.
// The change keeps the version and UID of obj: it removes nothing newer.
func (s Feed) PrepareGone(obj any) (*Change, error) { return s.writer.prepare(cache.Deleted, obj) }

// prepareAt is Prepare for a key that is given.
func (w *writer) prepareAt(typ cache.DeltaType, key string, obj any) (*Change, error) {
	return w.finish(changeAt(typ, key, obj))
}

// finish is the rest of Prepare.
func (w *writer) finish(c *Change) (*Change, error) {
	if c.obj != nil || c.typ != cache.Deleted {
		if err := w.encode(c); err != nil {
			return nil, err
		}
	}
	w.s.coder.pack(c)
	return c, nil
}

// identify is the cheap half of Prepare: key, version and UID.
func (w *writer) identify(typ cache.DeltaType, obj any) (*Change, error) {
	key, err := w.s.Key(obj)
	if err != nil {
		return nil, err
	}
	return changeAt(typ, key, obj), nil
}

// changeAt is identify for a key that is given.
func changeAt(typ cache.DeltaType, key string, obj any) *Change {
	c := &Change{typ: cache.Added, key: key}
	if typ == cache.Deleted {
		c.typ = cache.Deleted
		if _, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
			return c
		}
	}
	c.obj = obj
	if m := objmeta.Of(obj); m != nil {
		c.rv, c.uid = m.GetResourceVersion(), string(m.GetUID())
	}
	return c
}

// coder makes keys and payloads of the program's objects, and objects of payloads.
type coder struct {
	owner    format.Owner
	codec    codec.Codec
	trial    *trial // nil: the codec is known to keep objects whole
	keyFunc  cache.KeyFunc
	metaKeys bool // keyFunc is client-go's
	packs    bool // see Options.Compression
	goType   reflect.Type
	guessed  bool // of a view, which may have another Go type than the program that wrote the records
	form     Form
	kind     schema.GroupVersionKind // empty: the first object shows it
	shown    atomic.Pointer[schema.GroupVersionKind]
}

// key returns the failure of a key function of the program's own as an error.
func (cd *coder) key(obj any) (string, error) {
	if cd.metaKeys {
		return contained("it", func() (string, error) { return cd.keyFunc(obj) })
	}
	return containedApart("it", func() (string, error) { return cd.keyFunc(obj) })
}

// encode is the other half of Prepare: index values and payload.
func (w *writer) encode(c *Change) error {
	ro, ok := c.obj.(runtime.Object)
	if !ok || objmeta.IsNil(ro) {
		return fmt.Errorf("boltstore: %q: %T is not a runtime.Object, or nil", c.key, c.obj)
	}
	if !w.expectsProducer() {
		w.s.coder.showsKind(ro)
	}
	var err error
	if c.typ != cache.Deleted {
		c.set = w.s.indices.set()
		w.s.indices.values(c)
	}
	if c.whole, err = w.s.coder.encode(ro); err != nil {
		return fmt.Errorf("boltstore: encode %q: %w", c.key, err)
	}
	c.payload = c.whole[format.HeadRoom:]
	if n := c.stored(); n > format.MaxPayload {
		return fmt.Errorf("boltstore: %q: it has %d bytes; the largest object that can be stored has %d",
			c.key, n, format.MaxPayload)
	}
	if c.typ != cache.Deleted { // a delete is told even if its last state does not come back whole
		if err := w.s.coder.trial.run(w.s.coder.codec, c.payload, ro); err != nil {
			return fmt.Errorf("boltstore: %q: %w; give a codec for the type (Codec)", c.key, err)
		}
	}
	return nil
}

// stored is how many bytes an encoded object and its index values have.
func (c *Change) stored() int {
	n := len(c.payload)
	for _, iv := range c.values {
		for _, value := range iv.Values {
			n += len(value)
		}
	}
	return n
}

// encode encodes an object behind room for a record's head.
func (cd *coder) encode(obj runtime.Object) ([]byte, error) {
	return callCodec(cd, func() ([]byte, error) { return cd.codec.Append(format.ZeroHead[:], obj) })
}

// decode decodes a payload.
func (cd *coder) decode(payload []byte) (runtime.Object, error) {
	return callCodec(cd, func() (runtime.Object, error) { return cd.codec.Decode(payload) })
}

// callCodec returns the failure of the program's codec as an error: a program that panics
// at each start would never get past the object.
func callCodec[T any](cd *coder, fn func() (T, error)) (T, error) {
	if cd.codec.ID() < codec.IDCustom {
		return contained("the codec", fn)
	}
	return containedApart("the codec", fn)
}

// contained returns a panic of fn as an error.
func contained[T any](what string, fn func() (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s panicked: %v", what, r)
		}
	}()
	return fn()
}

// containedApart is contained for a function of the program's own, which may also end its
// goroutine. The caller's may be the committer's or the Reflector's, and goes on.
func containedApart[T any](what string, fn func() (T, error)) (v T, err error) {
	if !apart(func() {
		debug.SetPanicOnFault(true) // of the file
		v, err = contained(what, fn)
	}) {
		err = fmt.Errorf("%s has ended its goroutine (runtime.Goexit, t.FailNow)", what)
	}
	return v, err
}
