package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"github.com/kubewake/kubewake/boltstore/internal/pages"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/seal"
)

// readKeyset reads the keyset before the file is touched.
func (db *DB) readKeyset() error {
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
func (db *DB) unlock(h header) (*seal.Sealer, error) {
	switch {
	case h.Keys == nil:
		return nil, nil
	case db.master == nil:
		return nil, fmt.Errorf("%w: the file is encrypted and no keyset was given; give the one that has the key %d", ErrKeyset, h.Keys.KeyID)
	}
	return db.master.Unwrap(h.Keys)
}

// wanted says whether the file is to be encrypted.
func (db *DB) wanted() bool { return db.master != nil && !db.opts.Decrypt }

// newKeys makes data keys for a file, nil for a plain one.
func (db *DB) newKeys() (*seal.Sealer, *seal.Envelope, error) {
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
// for: encrypted, plain, or with its data keys sealed by the primary key.
func (db *DB) settleKeys() error {
	h, err := db.header()
	if err != nil {
		return err
	}
	switch {
	case db.wanted() != (h.Keys != nil):
		db.log().Info("Converting the file", "file", db.path, "encrypted", db.wanted())
		err = db.rekey()
	case h.Keys != nil && !db.master.Current(h.Keys):
		err = db.rewrap()
	}
	if err == nil && db.wanted() {
		db.warnPlainAside()
	}
	return err
}

// warnPlainAside names what was set aside while the file was plain, which may
// say all that an encrypted file hides. It is not ours to remove.
func (db *DB) warnPlainAside() {
	var plain []string
	for _, name := range db.asideFiles() {
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
func (db *DB) rewrap() error {
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

// Rotate gives an encrypted file new data keys: it is copied, and the copy takes
// its place. Relists under way are let end first, for an hour at most; what
// then goes on is ErrReplaced. Reads go on meanwhile, writes wait. A crash leaves the file of
// before or the new one. Open does the same in the background where the keyset
// has got another primary key.
func (db *DB) Rotate() error {
	if db.opts.ReadOnly || !db.Encrypted() {
		return fmt.Errorf("boltstore: rotate the keys of %s: it is open for reading only, or not encrypted", db.path)
	}
	if err := db.rekey(); err != nil {
		return fmt.Errorf("boltstore: rotate the keys of %s: %w", db.path, err)
	}
	return nil
}

// rotate is Rotate in the background.
func (db *DB) rotate() {
	if err := db.rekey(); err == nil {
		db.log().Info("The file has new data keys", "file", db.path)
	} else if !errors.Is(err, ErrClosed) {
		db.log().Error(err, "The file could not be given new data keys; the next start will try again", "file", db.path)
	}
}

// damagedKeys opens the data keys of a file that cannot be opened itself, and
// returns the header of the one that is to take its place. That they cannot be
// found there is no error: then nothing of it can be saved. A keyset that is not
// the file's is. known says that the file is not known to be of another format,
// which would be misread.
func (db *DB) damagedKeys() (s *seal.Sealer, next header, known bool, err error) {
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
func (db *DB) Encrypted() bool {
	db.h.mu.RLock()
	defer db.h.mu.RUnlock()
	return db.h.seal != nil
}

// warnSecrets says once that Secrets go into a plain file.
func (db *DB) warnSecrets(src Source) {
	if src.Group != "" || src.Resource != "secrets" || db.Encrypted() {
		return
	}
	db.plainSecrets.Do(func() {
		db.log().Info("Warning: Secrets are kept in a file that is not encrypted; give Options.Keyset (kubewake: --keyset FILE, made by `kubewake keys generate FILE`) to encrypt it", "file", db.path, "source", src.String())
	})
}

// mark is a place in the order that a file has, or had before its keys were
// rotated: era counts the rotations while it is open.
type mark struct {
	era uint64
	at  []byte
}

// marks say how far a walk has come: a record has been passed if it is before
// any of them. A walk has several if the keys were rotated under way. In bytes
// each is a uvarint era, and the place after its length.
type marks []mark

func parseMarks(b []byte) (ms marks) {
	r := format.Reader{B: b}
	for len(r.B) > 0 && !r.Bad {
		ms = append(ms, mark{r.Uvarint(), r.Bytes()})
	}
	return ms
}

func (ms marks) bytes() (b []byte) {
	for _, m := range ms {
		b = format.AppendString(binary.AppendUvarint(b, m.era), string(m.at))
	}
	return b
}

// keepPlace turns the place of a walk (see Page) into one that means something
// in a later life of the process: that of a walk which has had one order only,
// after what tells this order from others. Any other is the start. The caller
// is in a transaction.
func (s *Store) keepPlace(next []byte) ([]byte, error) {
	ms := parseMarks(next)
	if len(ms) != 1 || ms[0].era != uint64(len(s.db.h.past)) {
		return nil, nil
	}
	id, err := layout.KeysID(s.db.h.seal)
	return append(id, ms[0].at...), err
}

// takePlace is the reverse.
func (s *Store) takePlace(kept []byte) ([]byte, error) {
	id, err := layout.KeysID(s.db.h.seal)
	at, same := bytes.CutPrefix(kept, id)
	if err != nil || !same || len(at) == 0 {
		return nil, err
	}
	return marks{{uint64(len(s.db.h.past)), at}}.bytes(), nil
}

// passed says whether the walk has passed the item key k. The caller is in a
// transaction.
func (s *Store) passed(ms marks, k []byte) bool {
	h := &s.db.h
	for _, m := range ms {
		sealer := h.seal
		if m.era < uint64(len(h.past)) {
			sealer = h.past[m.era]
		}
		at, err := sealer.Name(k, layout.ItemPlace(s.id))
		if err == nil && bytes.Compare(at, m.at) < 0 {
			return true
		}
	}
	return false
}
