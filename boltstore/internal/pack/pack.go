// Package pack compresses the payloads of records with zstd, by one dictionary of parts
// that objects of Kubernetes have in common.
package pack

import (
	"bytes"
	_ "embed"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// dictionary is the one that records call [format.Dictionary]. It never changes: files
// have payloads that only these bytes unpack.
//
//go:embed dictionary.zstd
var dictionary []byte

// packMin is the size of the shortest payload that is packed, in bytes.
const packMin = 64

// The decoder and the encoder are made here, and not at their first use, with their
// channels: those that a synctest bubble makes are of no use outside it.
var (
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderDicts(dictionary),
		zstd.WithDecoderConcurrency(min(runtime.GOMAXPROCS(0), 4)), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(format.MaxPayload), zstd.WithDecodeAllCapLimit(true)))
	encoder = must(zstd.NewWriter(nil, zstd.WithEncoderDict(dictionary),
		zstd.WithEncoderConcurrency(min(runtime.GOMAXPROCS(0), 2)), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(128<<10), zstd.WithEncoderCRC(false)))
)

func init() { encoder.EncodeAll(nil, nil) } // which makes its channels

// must panics if the program was built with something other than a dictionary.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Pack returns b packed, or nil if that does not save enough.
func Pack(b []byte) []byte {
	if len(b) < packMin {
		return nil
	}
	buf := bufs.Get().(*[]byte)
	defer bufs.Put(buf)
	*buf = encoder.EncodeAll(b, (*buf)[:0])
	if len(*buf) > len(b)-len(b)/16 {
		return nil
	}
	return bytes.Clone(*buf) // changes wait in memory: without spare room
}

var bufs = sync.Pool{New: func() any { return new([]byte) }}

// Unpack returns the size bytes that b was packed from. They lie in buf if they fit there.
func Unpack(b []byte, size int, buf []byte) ([]byte, error) {
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	plain, err := decoder.DecodeAll(b, buf[:0:size])
	if err != nil || len(plain) != size {
		return nil, fmt.Errorf("%w: cannot be unpacked: %d bytes of %d, %v", faults.ErrDamaged, len(plain), size, err)
	}
	return plain, nil
}
