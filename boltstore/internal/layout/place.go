package layout

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// place is associated data: a kind, and parts that distinguish a place from others of
// its kind.
func place(kind byte, parts ...[]byte) []byte {
	p := []byte{kind}
	for _, part := range parts {
		p = append(binary.AppendUvarint(p, uint64(len(part))), part...)
	}
	return p
}

const (
	placeMeta    = 'm'
	placeRecord  = 'r' // of source, item key
	placeBlock   = 'b' // of source, seq, head
	placeBox     = 'x' // a box, of source, kind, sub
	placeBoxed   = 'y' // a value in a box, of that place, key
	sealedBlock  = 0x81
	maxBlockHead = 1 + 2*binary.MaxVarintLen64
)

// unopened stands for a value that cannot be decrypted. No record or sum is so short.
var unopened = []byte{}

// ErrUnopened means that the data key does not decrypt a value.
var ErrUnopened = errors.New("it cannot be decrypted")

// OutOfOrder is the error of a walk that would go round in a circle at k.
func OutOfOrder(k []byte) error {
	return fmt.Errorf("%w: the keys are not in order at %x", faults.ErrDamaged, k)
}
