package boltstore

import (
	"bytes"
	"weak"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// sharedBlock is a journal block as it is in the file, in the place of the seq first, and its
// entries, which do not change.
type sharedBlock struct {
	first  uint64
	stored []byte
	drafts []format.Draft
}

// sharedDrafts returns a function that unpacks blocks of a source. It unpacks a block once
// for readers that follow each other closely: each watcher of the API on a file reads the
// last commit's. The garbage collector takes a block that nobody reads.
func (db *DB) sharedDrafts(src sourceTx) func(first uint64, b []byte) ([]format.Draft, error) {
	return func(first uint64, b []byte) ([]format.Draft, error) {
		if p, ok := db.blocks.Load(src.ID); ok {
			if last := p.(weak.Pointer[sharedBlock]).Value(); last != nil && last.first == first && bytes.Equal(last.stored, b) {
				return last.drafts, nil
			}
		}
		drafts, err := src.unpackBlock(first, b)
		if err == nil {
			db.blocks.Store(src.ID, weak.Make(&sharedBlock{first, bytes.Clone(b), drafts}))
		}
		return drafts, err
	}
}
