package format

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

const blockVersion = 1

// BlockBytes and MaxEntries bound a block that has several entries: it ends with the entry
// that reaches one of them. To read an entry takes its whole block into memory.
const (
	BlockBytes = 512 << 10 // of unpacked records
	MaxEntries = 8192
)

// maxBlockBytes is the unpacked size of the largest block, so that a damaged or forged one
// cannot exhaust memory: its last entry has two of the largest records. A MiB is for keys
// and lengths.
const maxBlockBytes = BlockBytes + 2*MaxPayload + 1<<20

// Draft is one journal entry: a change to the object of a key. Next is the record
// after the change, nil for a delete whose final state is unknown. Prev is the
// record before it as a diff from Next, nil if there was none.
type Draft struct {
	Type     cache.DeltaType
	Time     int64 // of the commit, unix ns
	Key      string
	Next     []byte
	Prev     Diff
	Unpacked bool // the payloads of both records are known not to be packed
}

// Previous is the record before the change, or nil.
func (d Draft) Previous() []byte { return d.Prev.Apply(d.Next) }

var entryTypes = map[cache.DeltaType]byte{cache.Added: 'A', cache.Updated: 'U', cache.Deleted: 'D'}

func entryType(b byte) (cache.DeltaType, bool) {
	for t, c := range entryTypes {
		if c == b {
			return t, true
		}
	}
	return "", false
}

// One encoder and one decoder serve all files: EncodeAll and DecodeAll keep no
// state and are safe for concurrent use.
var (
	zenc, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(blockHands),
		// a block has its own sum
		zstd.WithWindowSize(blockPart), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	zdec, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBlockBytes), zstd.WithDecodeAllCapLimit(true)) // to the size that the block states
	_ = zenc.EncodeAll(nil, nil) // makes its channel: one that a synctest bubble makes is of no use outside it
)

// A large block is packed as several zstd frames, one after the other. Each part
// fits in the processor's cache, and two goroutines share the work.
const (
	blockPart  = 256 << 10
	blockHands = 2
)

// scratch has buffers for parts.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, blockPart+64<<10); return &b }}

// parts splits drafts into parts of about blockPart bytes.
func parts(drafts []Draft) (all [][]Draft) {
	from, size := 0, 0
	for i, d := range drafts {
		if size += len(d.Next) + len(d.Prev); size >= blockPart {
			all, from, size = append(all, drafts[from:i+1]), i+1, 0
		}
	}
	if from < len(drafts) {
		all = append(all, drafts[from:])
	}
	return all
}

// PackBlock returns the block of drafts, whose first has that seq.
func (o Owner) PackBlock(seq uint64, drafts []Draft) []byte {
	all := parts(drafts)
	packed, sizes := make([][]byte, len(all)), make([]int, len(all))
	work := func(hand int) {
		raw := scratch.Get().(*[]byte)
		for i := hand; i < len(all); i += blockHands {
			*raw = appendDrafts((*raw)[:0], all[i])
			packed[i], sizes[i] = zenc.EncodeAll(*raw, make([]byte, 0, len(*raw)/8)), len(*raw)
		}
		scratch.Put(raw)
	}
	var others sync.WaitGroup
	for hand := 1; hand < min(blockHands, len(all)); hand++ {
		others.Go(func() { work(hand) })
	}
	work(0)
	others.Wait()
	size, room, last := 0, 0, int64(0)
	if n := len(drafts); n > 0 {
		last = drafts[n-1].Time
	}
	for i := range all {
		size += sizes[i]
		room += len(packed[i])
	}
	b := make([]byte, 5, room+5+3*binary.MaxVarintLen64)
	b[0] = blockVersion
	b = binary.AppendUvarint(b, uint64(len(drafts)))
	b = binary.AppendUvarint(b, uint64(last))
	b = binary.AppendUvarint(b, uint64(size))
	for _, p := range packed {
		b = append(b, p...)
	}
	binary.LittleEndian.PutUint32(b[1:5], o.blockSum(seq, b))
	return b
}

func appendDrafts(raw []byte, drafts []Draft) []byte {
	for _, d := range drafts {
		raw = append(raw, entryTypes[d.Type])
		raw = binary.AppendUvarint(raw, uint64(d.Time))
		raw = AppendString(raw, d.Key)
		raw = append(binary.AppendUvarint(raw, uint64(len(d.Next))), d.Next...)
		raw = append(binary.AppendUvarint(raw, uint64(len(d.Prev))), d.Prev...)
	}
	return raw
}

func (o Owner) blockSum(seq uint64, b []byte) uint32 {
	return crc32.Update(crc32.Update(uint32(o), castagnoli, binary.BigEndian.AppendUint64(nil, seq)), castagnoli, b[5:])
}

// UnpackBlock verifies and unpacks the block b at seq. The drafts do not alias b.
func (o Owner) UnpackBlock(seq uint64, b []byte) ([]Draft, error) {
	damaged := func(why string, args ...any) ([]Draft, error) {
		return nil, fmt.Errorf("journal block at %d: %w: %s", seq, faults.ErrDamaged, fmt.Sprintf(why, args...))
	}
	head, n, err := ParseBlockHead(seq, b)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(b[1:5]) != o.blockSum(seq, b) {
		return damaged("checksum differs")
	}
	size, m := binary.Uvarint(b[n:])
	if m <= 0 || size > maxBlockBytes || head.Count > MaxEntries {
		return damaged("%d entries of %d bytes", head.Count, size)
	}
	raw, err := zdec.DecodeAll(b[n+m:], make([]byte, 0, size))
	if err != nil || uint64(len(raw)) != size {
		return damaged("cannot unpack: %v", err)
	}
	r := Reader{B: raw}
	drafts := make([]Draft, 0, min(head.Count, uint64(len(raw))))
	for range head.Count {
		typ, ok := entryType(r.byte())
		d := Draft{Type: typ, Time: int64(r.Uvarint()), Key: string(r.Bytes()), Next: r.Bytes(), Prev: Diff(r.Bytes())}
		if r.Bad || !ok || d.Prev != nil && !d.Prev.fits(d.Next) {
			return damaged("entry %d of %d", len(drafts), head.Count)
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// BlockHead is the part of a block that can be read without unpacking it.
type BlockHead struct {
	Count uint64 // number of entries
	Last  int64  // time of the last entry, unix ns
}

// ParseBlockHead returns the head of the block b at seq, and where it ends.
func ParseBlockHead(seq uint64, b []byte) (h BlockHead, n int, err error) {
	if len(b) < 8 || b[0] != blockVersion {
		return h, 0, fmt.Errorf("journal block at %d: %w: version or length", seq, faults.ErrDamaged)
	}
	return ParseHead(seq, b, 5)
}

// ParseHead is [ParseBlockHead] for a head that begins at b[from:].
func ParseHead(seq uint64, b []byte, from int) (h BlockHead, n int, err error) {
	count, n := binary.Uvarint(b[from:])
	last, m := uint64(0), 0
	if n > 0 {
		last, m = binary.Uvarint(b[from+n:])
	}
	if n <= 0 || m <= 0 {
		return h, 0, fmt.Errorf("journal block at %d: %w: bad head", seq, faults.ErrDamaged)
	}
	return BlockHead{count, int64(last)}, from + n + m, nil
}

// Reader reads the numbers and strings of B. Bad is set once B has ended too early;
// everything read then is zero.
type Reader struct {
	B   []byte
	Bad bool
}

func (r *Reader) byte() byte {
	if len(r.B) == 0 {
		r.Bad = true
		return 0
	}
	c := r.B[0]
	r.B = r.B[1:]
	return c
}

func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.B = r.B[n:]
	return v
}

func (r *Reader) varint() int64 {
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.B = r.B[n:]
	return v
}

func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if r.Bad || n > uint64(len(r.B)) {
		r.Bad = true
		return nil
	}
	if n == 0 {
		return nil
	}
	s := r.B[:n:n]
	r.B = r.B[n:]
	return s
}
