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

// drafts returns a function that unpacks blocks of a source. It unpacks a block once
// for readers that follow each other closely: each watcher of the API on a file reads the
// last commit's. The garbage collector takes a block that nobody reads.
func (p *parsed) drafts(src sourceTx) func(first uint64, raw []byte) ([]format.Draft, error) {
	return func(first uint64, raw []byte) ([]format.Draft, error) {
		if b, ok := p.blocks.Load(src.ID); ok {
			if last := b.(weak.Pointer[sharedBlock]).Value(); last != nil && last.first == first &&
				bytes.Equal(last.stored, raw) {
				return last.drafts, nil
			}
		}
		drafts, err := src.unpackBlock(first, raw)
		if err == nil {
			p.blocks.Store(src.ID, weak.Make(&sharedBlock{first, bytes.Clone(raw), drafts}))
		}
		return drafts, err
	}
}
