package boltstore

import (
	"bytes"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
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

// unlock opens the data key of a file with that header.
func (db converting) unlock(h header) (*seal.Sealer, error) {
	switch {
	case h.Keys == nil:
		return nil, nil
	case db.master == nil:
		return nil, fmt.Errorf("%w: the file is encrypted and no keyset was given; give the one that has the key %d",
			ErrKeyset, h.Keys.KeyID)
	}
	return db.master.Unwrap(h.Keys)
}

// wanted says whether the options ask for encryption.
func (db converting) wanted() bool { return db.master != nil && !db.opts.decrypt }

// newKeys makes a data key for a file, nil without encryption.
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

// settleKeys converts a file that was opened for writing to the form that the options ask
// for: encrypted or not, with a data key that the keyset's primary key seals.
func (db converting) settleKeys() error {
	h, err := db.h.header()
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
		if err := db.converting().rotate(); errors.Is(err, ErrDamaged) {
			return err
		} else if err != nil {
			db.log().Error(err, "The file could not be given a new data key; the next start will try again",
				"file", db.path)
		}
	}
	if db.wanted() {
		db.warnPlainAside()
	}
	return nil
}

// rotate gives an encrypted file a new data key if one is due. After an error the
// file is as before, and one is still due.
func (db converting) rotate() error {
	if !db.master.Current(db.h.keys) {
		if err := db.rewrap(); err != nil {
			return err
		}
	}
	if !db.h.rotate {
		return nil
	}
	if err := db.rekey(); err != nil {
		return err
	}
	db.log().Info("The file has a new data key", "file", db.path)
	return nil
}

// Decrypt decrypts the file at path, which o.Keyset has encrypted. No process may have it
// open. The file is copied; a crash leaves the encrypted or the decrypted file. If the
// file is missing or cannot be read, Decrypt changes nothing. From then on open the file
// without a Keyset: with one, Open encrypts it again.
func Decrypt(path string, o Options) error {
	if o.Keyset == nil {
		return fmt.Errorf("boltstore: decrypt %s: %w: no keyset was given", path, ErrKeyset)
	}
	first := o
	first.ReadOnly, first.GiveWay = true, true
	o.ReadOnly, o.GiveWay, o.decrypt = false, false, true
	for _, o := range []Options{first, o} {
		db, err := Open(path, o)
		if err != nil {
			return err
		}
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

// KeysDue says whether the data key of an encrypted file is older than the keyset's
// primary key. Open gives such a file a new data key. If that fails for lack of room, the
// file is used as it is, and the next Open tries again.
func (db *DB) KeysDue() bool {
	return db.h.rotate || db.h.keys != nil && !db.master.Current(db.h.keys)
}

// warnPlainAside names, in the log, files that were set aside before the file was
// encrypted. They may contain what encryption now hides. Only the user may remove them.
func (db converting) warnPlainAside() {
	var plain []string
	for _, name := range db.beside.Aside() {
		if h, ok := headerOf(name); !ok || h.Keys == nil {
			plain = append(plain, name)
		}
	}
	if len(plain) > 0 {
		db.log().Info("Warning: files that were set aside are not encrypted; remove them when they are no "+
			"longer needed", "file", db.path, "aside", plain)
	}
}

// rewrap seals the data key with the keyset's primary key, and notes that a new one
// is due.
func (db converting) rewrap() error {
	e, err := db.master.Wrap(db.h.seal)
	if err != nil {
		return err
	}
	return db.durably(func(tx *bolt.Tx) error {
		return updateHeader(tx, func(h *header) { h.Keys, h.Rotate = e, true })
	}, func() { db.h.keys, db.h.rotate = e, true })
}

// damagedKeys opens the data key of a file that cannot be opened itself. next is the
// header for the file that replaces it. If the key cannot be found there, nothing of the
// file can be saved; that is no error. A keyset that is not the file's is one. known is
// false if the file may have another format, which would be misread.
func (db converting) damagedKeys() (s *seal.Sealer, next header, known bool, err error) {
	h, ok := headerOf(db.path)
	switch {
	case !ok:
		return nil, header{}, true, nil
	case h.Format != formatVersion:
		_, keys, err := db.newKeys()
		return nil, header{Keys: keys}, false, err
	}
	s, err = db.unlock(h)
	return s, header{Keys: h.Keys, Rotate: h.Rotate}, true, err
}

// headerOf reads the header of a file that may be damaged, without bbolt.
func headerOf(path string) (h header, ok bool) {
	f, done, err := pages.Open(path)
	if err != nil {
		return h, false
	}
	defer done()
	return headerIn(f)
}

func headerIn(f *pages.File) (h header, ok bool) {
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

func (h *handle) header() (is header, err error) {
	err = h.view(func(tx *bolt.Tx) (err error) { is, err = getHeader(tx); return err })
	return is, err
}

// Encrypted says whether the file is encrypted.
func (db *DB) Encrypted() bool { return db.h.seal != nil }

// secrets warns, once, that Secrets go into a file that is not encrypted.
func (wr *warnings) secrets(src Source) {
	if src.Group != "" || src.Resource != "secrets" || wr.db.Encrypted() {
		return
	}
	wr.plainSecrets.Do(func() {
		wr.db.log().Info("Warning: Secrets are kept in a file that is not encrypted; give Options.Keyset "+
			"(kubewake: --keyset FILE, made by `kubewake keys generate FILE`) to encrypt it", "file", wr.db.path,
			"source", src.String())
	})
}

// rekey replaces the file by a copy with a new data key, or without encryption, as the
// options ask. Only Open calls it, before any reader or writer. A crash leaves the old or
// the new file. After an error the old file is still in use, unless the new one is whole.
func (db converting) rekey() error {
	to, keys, err := db.newKeys()
	if err != nil {
		return err
	}
	cp := newCopying(db.DB, db.h.now.Load().f, seals{db.h.seal, to})
	was, err := db.replacing().rewrite(cp, header{Keys: keys}, db.opts.step)
	if was == nil {
		return err
	}
	db.h.seal, db.h.keys, db.h.rotate = to, keys, false
	if cerr := was.Close(); cerr != nil {
		db.log().Error(cerr, "The file before the conversion was not closed in order", "file", db.path)
	}
	return err
}

// converting is the part of a DB that gives the file another data key.
type converting struct{ *DB }

func (db *DB) converting() converting { return converting{db} }
