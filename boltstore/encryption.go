package boltstore

import (
	"bytes"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"github.com/kubewake/kubewake/boltstore/internal/pages"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/seal"
)

// readKeyset reads the keyset before the file is touched.
func (db converting) readKeyset() error {
	if db.opts.Keyset == nil {
		return nil
	}
	m, err := db.opts.Keyset.Read()
	if err != nil {
		return fmt.Errorf("boltstore: open %s: %w", db.given, err)
	}
	db.master = m
	return nil
}

// unlock opens the data keys of a file with that header.
func (db converting) unlock(h header) (*seal.Sealer, error) {
	switch {
	case h.Keys == nil:
		return nil, nil
	case db.master == nil:
		return nil, fmt.Errorf("%w: the file is encrypted and no keyset was given; give the one that has the key %d", ErrKeyset, h.Keys.KeyID)
	}
	return db.master.Unwrap(h.Keys)
}

// wanted says whether the file is to be encrypted.
func (db converting) wanted() bool { return db.master != nil && !db.opts.Decrypt }

// newKeys makes data keys for a file, nil for a plain one.
func (db converting) newKeys() (*seal.Sealer, *seal.Envelope, error) {
	if !db.wanted() {
		return nil, nil, nil
	}
	s, err := seal.NewSealer()
	if err != nil {
		return nil, nil, err
	}
	e, err := db.master.Wrap(s)
	return s, e, err
}

// settleKeys brings a file that was opened for writing to what the options ask
// for: encrypted or plain, with data keys of the keyset's primary key.
func (db converting) settleKeys() error {
	h, err := db.header()
	if err != nil {
		return err
	}
	switch {
	case db.wanted() != (h.Keys != nil):
		db.log().Info("Converting the file", "file", db.path, "encrypted", db.wanted())
		if err := db.rekey(); err != nil {
			return err
		}
	case h.Keys != nil:
		if err := db.rotate(); err != nil {
			db.log().Error(err, "The file could not be given new data keys; the next start will try again", "file", db.path)
		}
	}
	if db.wanted() {
		db.warnPlainAside()
	}
	return nil
}

// rotate gives an encrypted file new data keys if they are due. After an error
// the file is as good as before, and they are still due.
func (db *DB) rotate() error {
	if !db.master.Current(db.h.keys) {
		if err := db.converting().rewrap(); err != nil {
			return err
		}
	}
	if !db.h.rotate {
		return nil
	}
	if err := db.converting().rekey(); err != nil {
		return err
	}
	db.log().Info("The file has new data keys", "file", db.path)
	return nil
}

// KeysDue says whether the data keys of an encrypted file are older than the
// keyset's primary key. Open gives such a file new ones; where that fails, for
// lack of room, the file is used as it is and the next Open tries again.
func (db *DB) KeysDue() bool {
	return db.h.rotate || db.h.keys != nil && !db.master.Current(db.h.keys)
}

// warnPlainAside names what was set aside while the file was plain, which may
// say all that an encrypted file hides. It is not ours to remove.
func (db converting) warnPlainAside() {
	var plain []string
	for _, name := range db.beside.Aside() {
		if h, ok := headerOf(name); !ok || h.Keys == nil {
			plain = append(plain, name)
		}
	}
	if len(plain) > 0 {
		db.log().Info("Warning: files that were set aside are not encrypted; remove them when they are no longer needed", "file", db.path, "aside", plain)
	}
}

// rewrap seals the data keys by the keyset's primary key, and notes that new
// ones are due.
func (db converting) rewrap() error {
	e, err := db.master.Wrap(db.h.seal)
	if err != nil {
		return err
	}
	return db.durably(func(tx *bolt.Tx) error {
		h := header{}
		f := tx.Bucket(layout.BucketFile)
		if err := format.Get(f, layout.KeyHeader, &h); err != nil {
			return err
		}
		h.Keys, h.Rotate = e, true
		return format.Put(f, layout.KeyHeader, h)
	}, func() { db.h.keys, db.h.rotate = e, true })
}

// damagedKeys opens the data keys of a file that cannot be opened itself, and
// returns the header of the one that is to take its place. That they cannot be
// found there is no error: then nothing of it can be saved. A keyset that is not
// the file's is. known says that the file is not known to be of another format,
// which would be misread.
func (db healing) damagedKeys() (s *seal.Sealer, next header, known bool, err error) {
	h, ok := headerOf(db.path)
	switch {
	case !ok:
		return nil, header{}, true, nil
	case h.Format != formatVersion:
		_, keys, err := db.converting().newKeys()
		return nil, header{Keys: keys}, false, err
	}
	s, err = db.converting().unlock(h)
	return s, header{Keys: h.Keys, Rotate: h.Rotate}, true, err
}

// headerOf reads the header of a file that may be damaged, without bbolt.
func headerOf(path string) (h header, ok bool) {
	f, done, err := pages.Open(path)
	if err != nil {
		return h, false
	}
	defer done()
	file, err := f.Find(f.Top(), layout.BucketFile)
	if err != nil {
		return h, false
	}
	var raw []byte
	err = f.Each(file, func(k, v []byte, _ *pages.Bucket) {
		if bytes.Equal(k, layout.KeyHeader) {
			raw = v
		}
	})
	return h, err == nil && format.Decode(raw, &h) == nil
}

func (db *DB) header() (h header, err error) {
	err = db.h.view(func(tx *bolt.Tx) error { return format.Get(tx.Bucket(layout.BucketFile), layout.KeyHeader, &h) })
	return h, err
}

// Encrypted says whether the file is.
func (db *DB) Encrypted() bool { return db.h.seal != nil }

// warnSecrets says once that Secrets go into a plain file.
func (db *DB) warnSecrets(src Source) {
	if src.Group != "" || src.Resource != "secrets" || db.Encrypted() {
		return
	}
	db.plainSecrets.Do(func() {
		db.log().Info("Warning: Secrets are kept in a file that is not encrypted; give Options.Keyset (kubewake: --keyset FILE, made by `kubewake keys generate FILE`) to encrypt it", "file", db.path, "source", src.String())
	})
}

// keepPlace turns the place of a walk (see Page) into one that means something
// in a later life of the process. It begins with what tells the data keys, and
// with them the order, from others. The caller is in a transaction.
func (s *Store) keepPlace(next []byte) ([]byte, error) {
	if next == nil {
		return nil, nil
	}
	id, err := layout.KeysID(s.db.h.seal)
	return append(id, next...), err
}

// takePlace is the reverse. A place under other data keys is the start.
func (s *Store) takePlace(kept []byte) ([]byte, error) {
	id, err := layout.KeysID(s.db.h.seal)
	at, same := bytes.CutPrefix(kept, id)
	if err != nil || !same || len(at) == 0 {
		return nil, err
	}
	return at, nil
}
