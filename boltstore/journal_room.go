package boltstore

import (
	"errors"
	"time"

	berrors "go.etcd.io/bbolt/errors"
)

// withRoom calls write. While the file may not grow enough for it, history gives way to
// objects, and write is called again.
func (c *committer) withRoom(write func() error) error {
	err := write()
	for errors.Is(err, berrors.ErrMaxSizeReached) && c.cutHistory() {
		err = write()
	}
	return err
}

// cutHistory drops the older half of each claimed source's journal, except for what handlers
// need. It says whether it has dropped anything.
func (c *committer) cutHistory() (cut bool) {
	const blocks = 1000 // of a source, so that a transaction has few pages
	for _, s := range c.db.claims.all() {
		if m := s.metaNow(); m == nil || m.JournalBytes == 0 {
			continue
		}
		var was, is uint64
		err := s.updateMeta(func(src sourceTx, m *sourceMeta) error {
			m.Told = max(m.Told, min(s.handlers.told.Load(), m.Seq)) // the file may not have the last ones
			was = m.JournalBytes
			err := src.trimJournal(m, int64(was/2), time.Unix(0, 0), blocks)
			is = m.JournalBytes
			return err
		})
		cut = cut || err == nil && is < was // otherwise the caller's error says enough
	}
	if cut {
		c.db.warned.fullOfHistory.Do(func() {
			c.db.log().Info("The file is as large as it may be: the oldest history goes, to make room for objects; "+
				"raise Options.MaxSize (--max-size) or lower Options.JournalBytes (--journal-bytes)",
				"file", c.db.path, "maxSize", c.db.opts.MaxSize)
		})
	}
	return cut
}
