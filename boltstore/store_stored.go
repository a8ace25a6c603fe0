package boltstore

import (
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Stored is an object of a source that the program fills itself, with the time at which
// it was stored.
type Stored struct {
	Key    string
	Object any
	// Time is when the object was stored, as a time of this life: its age is right across
	// restarts, reboots and sleep, whatever the clock was set to. It is zero while the
	// age is not known; see Options.TrustClock. Lost says that it will never be known.
	Time time.Time
	Lost bool

	is recordID
}

// recordID tells a record from all others that its key may have had.
type recordID struct {
	stored int64
	crc    uint32
}

func idOf(r *format.Record) recordID { return recordID{r.Stored, r.CRC} }

// FilledByProgram says whether the source is the program's own: no informer feeds it or
// has listed it in an earlier life.
func (s Filled) FilledByProgram() bool { return s.writer.filledByProgram(s.metaNow()) }

func (w *writer) filledByProgram(m *sourceMeta) bool { return !w.expectsProducer() && !m.everListed() }

// ExpectProducer notes that a producer will be attached. Until its first list the source
// is not whole.
func (s Feed) ExpectProducer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writer.expectant = true
}

func (w *writer) expectsProducer() bool {
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	return w.expectant || w.producer != nil
}

// Key returns the key of obj, or a cache.KeyError.
func (s *source) Key(obj any) (string, error) {
	key, err := s.coder.key(obj)
	if err != nil {
		return "", cache.KeyError{Obj: obj, Err: err}
	}
	return key, nil
}

// GetStored is GetByKey with the time. It reads the file. An object that an informer has
// stored has no time: its time is Lost.
func (s Filled) GetStored(key string) (o Stored, exists bool, err error) {
	err = s.reader.read(func(m *sourceMeta, _ sourceTx, g contentsTx) error {
		r, ok := g.Items.Find(index.AppendKey(nil, key))
		if !ok {
			return nil
		}
		objs, err := s.reader.storedOf(m, []layout.Raw{r}, true)
		if err == nil {
			o, exists = objs[0], true
		}
		return err
	})
	return o, exists, s.health.explained(err)
}

// PageStored is Page for objects with their times. With an error it returns the page's
// other objects.
func (s Filled) PageStored(from []byte, n int) (objs []Stored, next []byte, err error) {
	err = s.reader.read(func(m *sourceMeta, _ sourceTx, g contentsTx) error {
		if g.Items == nil {
			return nil
		}
		raws, after, err := s.reader.pageOf(g, from, n, pageBytes)
		if err != nil {
			return err
		}
		next = after
		objs, err = s.reader.storedOf(m, raws, false)
		objs = slices.DeleteFunc(objs, func(o Stored) bool { return o.Object == nil })
		return err
	})
	return objs, next, s.health.explained(err)
}

// storedOf decodes records with their times. keep is as for decodeAll.
func (rd *reader) storedOf(m *sourceMeta, raws []layout.Raw, keep bool) ([]Stored, error) {
	objs := make([]Stored, len(raws))
	err := rd.decodeEach(raws, func(i int, key string, r *format.Record) (err error) {
		o := Stored{Key: key, is: idOf(r)}
		if o.Object, err = rd.decode(key, r, keep); err != nil {
			return err
		}
		o.Time, o.Lost = m.storedAt(rd.s.db.device, r.Stored)
		objs[i] = o
		return nil
	})
	return objs, err
}

// DeleteStored removes objects in one commit. An object stays if its key has been stored
// again since.
func (s Filled) DeleteStored(objs ...Stored) error {
	if len(objs) == 0 {
		return nil
	}
	b := &Batch{}
	for _, o := range objs {
		b.Changes = append(b.Changes, &Change{typ: cache.Deleted, key: o.Key, only: &o.is})
	}
	return s.write(b)
}

// replaced says whether the change is for another record than the present one.
func (c *Change) replaced(was keyState) bool {
	return c.only != nil && (was.item == nil || idOf(was.item) != *c.only)
}
