package boltstore

import (
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	bolt "go.etcd.io/bbolt"
)

// guard runs fn in a transaction by begin, which is bbolt's View or Update.
//
// If bbolt panics while a transaction begins or is rolled back, as in a file that was
// truncated, it keeps its locks. All other readers and writers would wait for ever, and
// so would the healing of the file. So guard releases the locks that are left.
func (b *boltFile) guard(write bool, begin func(func(*bolt.Tx) error) error, fn func(*bolt.Tx) error) error {
	if write && b.unwritable.Load() {
		return errTripped
	}
	var tx *bolt.Tx
	returned := false
	defer func() {
		if !returned && (tx == nil || tx.DB() != nil) { // it has not begun or not ended
			b.unlock(write)
		}
	}()
	err := begin(func(t *bolt.Tx) error { tx = t; return fn(t) })
	returned = true
	return err
}

// unlock releases the locks of this goroutine's transaction, which panicked in bbolt.
func (b *boltFile) unlock(write bool) {
	if write {
		b.unwritable.Store(true) // the list of free pages may be rolled back in part
		if l := lockOf[sync.Mutex](b.DB, "rwlock"); l != nil {
			l.TryLock() // only the handle's one writer takes it
			l.Unlock()
		}
		return
	}
	meta, mapped := lockOf[sync.Mutex](b.DB, "metalock"), lockOf[sync.RWMutex](b.DB, "mmaplock")
	if meta == nil || mapped == nil {
		return
	}
	for range 100_000 { // tens of milliseconds
		if meta.TryLock() { // this bbolt releases its locks itself
			meta.Unlock()
			return
		}
		runtime.Gosched()
	}
	mapped.RUnlock()
	meta.Unlock()
}

// lockOf returns a lock of bbolt, nil if this bbolt has none of that name and type.
func lockOf[L any](db *bolt.DB, name string) *L {
	v := reflect.ValueOf(db).Elem().FieldByName(name)
	if !v.IsValid() || v.Type() != reflect.TypeFor[L]() {
		return nil
	}
	return (*L)(unsafe.Pointer(v.UnsafeAddr()))
}
