package boltstore

import (
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/pack"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Change is one change to a source, made ready to be stored by
// [Store.Prepare]: all that calls the user's functions is done.
type Change struct {
	typ     cache.DeltaType // Added (or updated), or Deleted
	key     string
	obj     any // what the handlers get; nil for a delete whose final state is unknown
	rv, uid string
	set     *indexSet // by which values were computed
	values  []format.IndexValues
	payload []byte       // nil for a delete whose final state is unknown
	whole   []byte       // recordRoom bytes and then the payload; nil once that is packed
	quiet   bool         // only the index values differ: nothing to tell
	by      *pack.Packer // nil: payload is not packed
	size    int          // of the payload before it was packed

	// failed are the indices whose functions failed, failedWhy is the reason of
	// one of them.
	failed    []string
	failedWhy string
	// unstored is why the object cannot be stored: the change is a note of that.
	unstored string
	nameless bool // its key is not known either
	unknown  bool // see TellUnknown
	hide     bool // what the file has of it must not be served
}

// Key of the object.
func (c *Change) Key() string { return c.key }

// ResourceVersion of the object, "" where it has none.
func (c *Change) ResourceVersion() string { return c.rv }

// TellUnknown has a delete told also if the file does not hold the object. The
// caller knows that the delete has not come before. It does nothing to a delete
// without a final state.
func (c *Change) TellUnknown() { c.unknown = c.typ == cache.Deleted && c.payload != nil }

// Size is what the change counts for, in bytes: its payload, and about what a
// small object takes in memory.
func (c *Change) Size() int { return len(c.payload) + len(c.key) + smallObject }

// Memory is about what the change takes in memory, in bytes: its payload and the
// decoded object.
func (c *Change) Memory() int {
	n := len(c.payload) + len(c.key) + smallObject
	if c.obj != nil {
		n += decodedSize(max(c.size, len(c.payload)))
	}
	return n
}

// decodedSize is about what an object takes in memory, decoded, in bytes.
func decodedSize(encoded int) int { return 3*encoded + smallObject }

// smallObject is about what a decoded object takes in memory, in bytes, however
// small it is.
const smallObject = 1500

// Prepare computes the key and the index values of obj and encodes it. typ is
// cache.Deleted or any other delta type that carries an object. The object
// must not be modified from then on. An error means that this object cannot be
// stored; it says why and says nothing about others. One that an index function
// fails on is stored without values of that index.
func (s *Claimed) Prepare(typ cache.DeltaType, obj any) (*Change, error) {
	c, err := s.identify(typ, obj)
	if err != nil {
		return nil, err
	}
	if c.obj != nil {
		err = s.encode(c)
	}
	if err != nil {
		return nil, err
	}
	s.pack(c)
	return c, nil
}

// identify is the cheap half of Prepare: key, version and UID.
func (s *Store) identify(typ cache.DeltaType, obj any) (*Change, error) {
	key, err := s.callKeyFunc(obj)
	if err != nil {
		return nil, cache.KeyError{Obj: obj, Err: err}
	}
	c := &Change{typ: cache.Added, key: key}
	if typ == cache.Deleted {
		c.typ = cache.Deleted
	}
	if _, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
		c.typ = cache.Deleted
		return c, nil
	}
	c.obj = obj
	if m, err := meta.Accessor(obj); err == nil {
		c.rv, c.uid = m.GetResourceVersion(), string(m.GetUID())
	}
	return c, nil
}

// callKeyFunc makes an error of a panic.
func (s *Store) callKeyFunc(obj any) (key string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panicked: %v", r)
		}
	}()
	return s.keyFunc(obj)
}

// encode is the other half.
func (s *Store) encode(c *Change) error {
	ro, ok := c.obj.(runtime.Object)
	if !ok {
		return fmt.Errorf("boltstore: %q: %T is not a runtime.Object", c.key, c.obj)
	}
	var err error
	if c.typ != cache.Deleted {
		c.set = s.indexSet()
		s.values(c)
	}
	if c.whole, err = s.codec.Append(format.ZeroHead[:], ro); err != nil {
		return fmt.Errorf("boltstore: encode %q: %w", c.key, err)
	}
	c.payload = c.whole[format.HeadRoom:]
	if c.typ != cache.Deleted { // a delete is told, whatever becomes of the last state
		if err := s.trial.run(s.codec, c.payload, ro); err != nil {
			return fmt.Errorf("boltstore: %q: %w; give a codec for the type (Codec)", c.key, err)
		}
	}
	return nil
}
