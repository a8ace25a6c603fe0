package boltstore

import (
	"errors"
	"io"
	"os"
)

// anotherBoot opens a copy of the file as the next boot finds it after a power cut. It is
// sound, and no part of it is set aside.
func (m *storeModel) anotherBoot() {
	snap, err := m.db.Snapshot()
	m.must(err)
	b, err := io.ReadAll(snap)
	m.must(errors.Join(err, snap.Close()))
	path := testPath(m.t)
	m.must(os.WriteFile(path, b, 0o600))
	changeHeader(m.t, path, func(h *header) {
		ofUncleanBoot(h)
		h.SyncedCommits = true
	})
	db, err := Open(path, Options{Keyset: m.o.Keyset, decrypt: m.o.decrypt, ObjectMemory: -1})
	m.must(err)
	if aside := db.AsidePaths(); aside != nil {
		m.fail("set aside after a power cut: %q, %+v", aside, m.s.State())
	}
	m.must(errors.Join(db.Close(), os.Remove(path)))
}
