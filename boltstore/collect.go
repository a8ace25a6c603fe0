package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// claimNoteEvery is how often a claim's use is noted in the file, at most. The note
// goes along with a commit, and has one of its own after FlushInterval.
const claimNoteEvery = time.Hour

// claimDue says whether the use of the claim and of its handlers is to be noted. The
// notes of all sources fall due at the same times since Open, and so share commits.
func (s *Store) claimDue() bool {
	m, every := s.metaNow(), claimNoteEvery
	if s.db.opts.HandlerAge > 0 && len(s.claimedHandlers()) > 0 {
		every = s.db.opts.handlerSeen()
	}
	claimed, now := time.Unix(0, m.Claimed), s.db.opts.Clock.Now().Round(0)
	period := func(t time.Time) time.Duration { return t.Sub(s.db.since.at.Round(0)) / every }
	since := now.Sub(claimed)
	return since >= every || since < 0 || period(now) != period(claimed) || !m.ClaimedRight && s.db.device.right()
}

// Collected is a source that was removed from the file because nobody claimed it.
type Collected struct {
	Source  Source    `json:"source"`
	Claimed time.Time `json:"claimed"` // last use
	Objects uint64    `json:"objects"`
	Bytes   uint64    `json:"bytes"`
}

// collect removes the sources that nobody has claimed for the given time, and contents
// that were set aside that long ago. It does nothing unless the clock is known to be
// right.
func (db collecting) collect(ctx context.Context, after time.Duration) (collected []Collected, err error) {
	if !db.device.right() {
		return nil, nil // nothing shows how long ago that was
	}
	before := db.opts.Clock.Now().Add(-after)
	found := map[string]Collected{}
	var undated []string
	// Leftovers of a crash go first, since their place is needed.
	if err = db.dateAside(); err == nil {
		err = db.pruneAside(ctx, before)
	}
	if err != nil {
		return nil, fmt.Errorf("boltstore: collect in %s: %w", db.path, err)
	}
	err = db.h.view(func(tx *bolt.Tx) error {
		return eachSource(tx, db.h.seal, func(id string, src sourceTx) error {
			// The next claim sets aside a source whose meta cannot be read.
			m, err := src.meta()
			switch {
			case err != nil:
			case !m.ClaimedRight && !db.device.trust:
				undated = append(undated, id)
			case db.unclaimed(m, before):
				found[id] = Collected{Source: m.Source, Claimed: time.Unix(0, m.Claimed), Objects: m.Items.Count, Bytes: m.Bytes}
			}
			return nil
		})
	})
	for _, id := range undated {
		if err == nil {
			err = db.date(id)
		}
	}
	for id, c := range found {
		if err != nil {
			break
		}
		var gone bool
		if gone, err = db.discard(id, before); gone {
			collected = append(collected, c)
			db.log().Info("Removed a source that no program has used for a long time", "source", c.Source.String(), "file", db.path,
				"claimed", c.Claimed, "objects", c.Objects)
		}
	}
	if err == nil {
		err = db.pruneAside(ctx, before)
	}
	if err != nil {
		err = fmt.Errorf("boltstore: collect in %s: %w", db.path, err)
	}
	return collected, err
}

func (db collecting) unclaimed(m *sourceMeta, before time.Time) bool {
	return m.Claimed != 0 && (m.ClaimedRight || db.device.trust) && time.Unix(0, m.Claimed).Before(before)
}

// date dates the last claim of an unclaimed source anew: the clock may have been wrong
// then.
func (db collecting) date(id string) error {
	db.claiming.Lock() // no claim begins meanwhile
	defer db.claiming.Unlock()
	if db.claimOf(id) != nil {
		return nil // its next commit notes the time
	}
	return db.h.update(func(tx *bolt.Tx) error {
		src, ok := db.h.source(tx, id)
		if !ok {
			return nil
		}
		m, err := src.meta()
		if err != nil {
			return err
		}
		m.Claimed, m.ClaimedBy = db.device.dateAnew(m.Claimed, m.ClaimedBy)
		m.ClaimedRight = db.device.right()
		return src.putMeta(m)
	}, nil)
}

// discard sets a source aside in one step, for pruneAside to remove. It does nothing if
// the source is claimed, or was claimed after the given time.
func (db collecting) discard(id string, before time.Time) (gone bool, err error) {
	db.claiming.Lock() // no claim begins meanwhile
	defer db.claiming.Unlock()
	if db.claimOf(id) != nil {
		return false, nil
	}
	err = db.h.update(func(tx *bolt.Tx) error {
		src, ok := db.h.source(tx, id)
		if !ok {
			return nil
		}
		m, err := src.meta()
		if err != nil || !db.unclaimed(m, before) {
			return err
		}
		gone = true
		return db.h.moveAside(tx, id, discarded)
	}, nil)
	return gone && err == nil, err
}

// discarded is the time of contents that are set aside only to be removed.
var discarded = time.Unix(0, 0)

// pruneAside removes contents that were set aside before the given time, in bounded
// transactions.
func (db collecting) pruneAside(ctx context.Context, before time.Time) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		none := false
		err := db.h.view(func(tx *bolt.Tx) error {
			_, none = firstAside(tx, before)
			return nil
		})
		if err != nil || none {
			return err
		}
		err = db.h.update(func(tx *bolt.Tx) error {
			k, none := firstAside(tx, before)
			if none {
				return nil
			}
			aside, room := tx.Bucket(layout.BucketAside), db.opts.maxCommitBytes
			empty, err := prune(aside.Bucket(k), &room)
			if err != nil || !empty {
				return err
			}
			return layout.Drop(aside, k)
		}, nil)
		if err != nil {
			return err
		}
	}
}

func firstAside(tx *bolt.Tx, before time.Time) (k []byte, none bool) {
	aside := tx.Bucket(layout.BucketAside)
	if aside == nil {
		return nil, true
	}
	k, _ = aside.Cursor().First()
	if len(k) != 8 || int64(binary.BigEndian.Uint64(k)) >= before.UnixNano() {
		return nil, true
	}
	return bytes.Clone(k), false
}

// prune empties a bucket as far as room allows, and says whether nothing is left.
func prune(b *bolt.Bucket, room *int) (empty bool, err error) {
	var keys, buckets [][]byte
	c := b.Cursor()
	k, v := c.First()
	for ; k != nil && *room > 0; k, v = c.Next() {
		if v == nil {
			buckets = append(buckets, bytes.Clone(k))
			if empty, err = prune(b.Bucket(k), room); err != nil {
				return false, err
			}
			if !empty {
				buckets = buckets[:len(buckets)-1]
				break
			}
			*room -= len(k) + 64
			continue
		}
		keys = append(keys, bytes.Clone(k))
		*room -= len(k) + len(v) + 16
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return false, err
		}
	}
	for _, k := range buckets {
		if err := layout.Drop(b, k); err != nil {
			return false, err
		}
	}
	return k == nil, nil
}

// collecting is the part of a DB that removes unused sources and old contents.
type collecting struct{ *DB }

func (db *DB) collecting() collecting { return collecting{db} }
