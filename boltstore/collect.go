package boltstore

import (
	"context"
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
func (s *source) claimDue() bool {
	m, every := s.metaNow(), claimNoteEvery
	if s.db.opts.HandlerAge > 0 && len(s.handlers.all()) > 0 {
		every = s.db.opts.handlerSeen()
	}
	claimed, now := time.Unix(0, m.Claimed), s.db.opts.Clock.Now().Round(0)
	period := func(t time.Time) time.Duration { return t.Sub(s.db.whileOpen.since.at.Round(0)) / every }
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

// collect removes the sources that nobody has claimed for the given time. It does nothing
// unless the clock is known to be right.
func (db collecting) collect(ctx context.Context, after time.Duration) (collected []Collected, err error) {
	if !db.device.right() {
		return nil, nil // nothing shows how long ago that was
	}
	before := db.opts.Clock.Now().Add(-after)
	found := map[string]Collected{}
	var undated []string
	err = db.h.view(func(tx *bolt.Tx) error {
		return eachSource(tx, db.h.seal, func(id string, src sourceTx) error {
			// The next claim empties a source whose meta cannot be read.
			m, err := src.meta()
			switch {
			case err != nil:
			case !m.ClaimedRight && !db.device.trust:
				undated = append(undated, id)
			case db.unclaimed(m, before):
				found[id] = Collected{Source: m.Source, Claimed: time.Unix(0, m.Claimed), Objects: m.Items.Count,
					Bytes: m.Bytes}
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
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			break
		}
		var gone bool
		if gone, err = db.discard(id, before); gone {
			collected = append(collected, c)
			db.log().Info("Removed a source that no program has used for a long time", "source", c.Source.String(),
				"file", db.path,
				"claimed", c.Claimed, "objects", c.Objects)
		}
	}
	if err != nil {
		err = fmt.Errorf("boltstore: collect in %s: %w", db.path, err)
	}
	return collected, err
}

func (db collecting) unclaimed(m *sourceMeta, before time.Time) bool {
	return (m.ClaimedRight || db.device.trust) && time.Unix(0, m.Claimed).Before(before)
}

// date dates the last claim of an unclaimed source anew: the clock may have been wrong
// then.
func (db collecting) date(id string) error {
	db.claims.claiming.Lock() // no claim begins meanwhile
	defer db.claims.claiming.Unlock()
	if db.claims.find(id) != nil {
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

// discard removes a source. It does nothing if the source is claimed, or was claimed after
// the given time.
func (db collecting) discard(id string, before time.Time) (gone bool, err error) {
	db.claims.claiming.Lock() // no claim begins meanwhile
	defer db.claims.claiming.Unlock()
	if db.claims.find(id) != nil {
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
		return layout.Drop(tx.Bucket(layout.BucketSources), []byte(id))
	}, nil)
	return gone && err == nil, err
}

// collecting is the part of a DB that removes unused sources.
type collecting struct{ *DB }

func (db *DB) collecting() collecting { return collecting{db} }
