package boltstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/client-go/tools/cache"
)

const blockVersion = 1

// maxBlockBytes bounds what a block may unpack to, so that a damaged length
// cannot make us allocate.
const maxBlockBytes = 1 << 30

// draft is a journal entry before and after it is packed. The records are as
// in items; next is nil for a delete whose final state is unknown, prev, which
// tells the one before by next, for an object that was not there.
type draft struct {
	typ   cache.DeltaType
	time  int64 // unix ns
	key   string
	next  []byte
	prev  diff
	plain bool // neither is packed, as far as is known
}

// previous is the record before.
func (d draft) previous() []byte { return d.prev.record(d.next) }

var entryTypes = map[cache.DeltaType]byte{cache.Added: 'A', cache.Updated: 'U', cache.Deleted: 'D'}

func entryType(b byte) (cache.DeltaType, bool) {
	for t, c := range entryTypes {
		if c == b {
			return t, true
		}
	}
	return "", false
}

// One encoder and decoder serve all files: EncodeAll and DecodeAll keep no
// state between calls and may be called concurrently.
var (
	zenc, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(blockHands),
		zstd.WithWindowSize(blockPart), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // a block has its own
	zdec, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxBlockBytes))
)

// A large block is packed in parts, which follow one another as zstd allows: so
// that what is copied stays in the processor's cache, and two can work at it.
const (
	blockPart  = 256 << 10
	blockHands = 2
)

// scratch are buffers for parts that are being made.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, blockPart+64<<10); return &b }}

// parts splits drafts into such of about blockPart.
func parts(drafts []draft) (all [][]draft) {
	from, size := 0, 0
	for i, d := range drafts {
		if size += len(d.next) + len(d.prev); size >= blockPart {
			all, from, size = append(all, drafts[from:i+1]), i+1, 0
		}
	}
	if from < len(drafts) {
		all = append(all, drafts[from:])
	}
	return all
}

func packBlock(seq uint64, drafts []draft) []byte {
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
		last = drafts[n-1].time
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
	binary.LittleEndian.PutUint32(b[1:5], blockSum(seq, b))
	return b
}

func appendDrafts(raw []byte, drafts []draft) []byte {
	for _, d := range drafts {
		raw = append(raw, entryTypes[d.typ])
		raw = binary.AppendUvarint(raw, uint64(d.time))
		raw = appendString(raw, d.key)
		raw = append(binary.AppendUvarint(raw, uint64(len(d.next))), d.next...)
		raw = append(binary.AppendUvarint(raw, uint64(len(d.prev))), d.prev...)
	}
	return raw
}

func blockSum(seq uint64, b []byte) uint32 {
	return crc32.Update(crc32.Checksum(u64(seq), castagnoli), castagnoli, b[5:])
}

// unpackBlock verifies and unpacks a block. The drafts do not alias b.
func unpackBlock(seq uint64, b []byte) ([]draft, error) {
	damaged := func(why string, args ...any) ([]draft, error) {
		return nil, fmt.Errorf("journal block at %d: %w: %s", seq, ErrDamaged, fmt.Sprintf(why, args...))
	}
	head, n, err := parseBlockHead(seq, b)
	if err != nil {
		return nil, err
	}
	if blockSum(seq, b) != binary.LittleEndian.Uint32(b[1:5]) {
		return damaged("checksum differs")
	}
	size, m := binary.Uvarint(b[n:])
	if m <= 0 || size > maxBlockBytes {
		return damaged("bad size")
	}
	raw, err := zdec.DecodeAll(b[n+m:], make([]byte, 0, min(size, 64<<20)))
	if err != nil || uint64(len(raw)) != size {
		return damaged("cannot unpack: %v", err)
	}
	r := blockReader{b: raw}
	drafts := make([]draft, 0, min(head.count, uint64(len(raw))))
	for range head.count {
		typ, ok := entryType(r.byte())
		d := draft{typ: typ, time: int64(r.uvarint()), key: string(r.bytes()), next: r.bytes(), prev: diff(r.bytes())}
		if r.bad || !ok || d.prev != nil && !d.prev.fits(d.next) {
			return damaged("entry %d of %d", len(drafts), head.count)
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// blockHead is what can be read of a block without unpacking it.
type blockHead struct {
	count uint64 // of entries
	last  int64  // time of the last one, unix ns
}

// parseBlockHead also says where the head ends.
func parseBlockHead(seq uint64, b []byte) (h blockHead, n int, err error) {
	if len(b) < 8 || b[0] != blockVersion {
		return h, 0, fmt.Errorf("journal block at %d: %w: version or length", seq, ErrDamaged)
	}
	return parseHead(seq, b, 5)
}

// parseHead reads what begins at b[from:].
func parseHead(seq uint64, b []byte, from int) (h blockHead, n int, err error) {
	count, n := binary.Uvarint(b[from:])
	last, m := uint64(0), 0
	if n > 0 {
		last, m = binary.Uvarint(b[from+n:])
	}
	if n <= 0 || m <= 0 {
		return h, 0, fmt.Errorf("journal block at %d: %w: bad head", seq, ErrDamaged)
	}
	return blockHead{count, int64(last)}, from + n + m, nil
}

type blockReader struct {
	b   []byte
	bad bool
}

func (r *blockReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *blockReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *blockReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *blockReader) bytes() []byte {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	if n == 0 {
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

// appendBlock journals drafts under the seqs that follow last and returns the
// block's size.
func (t sourceTx) appendBlock(last uint64, drafts []draft) (int, error) {
	// What a relist staged that could not be aborted in order.
	if err := t.dropJournalAbove(last); err != nil {
		return 0, err
	}
	j, err := t.createJournal()
	if err != nil {
		return 0, err
	}
	b, err := t.sealBlock(last+1, packBlock(last+1, drafts))
	if err != nil {
		return 0, err
	}
	return len(b), j.Put(u64(last+1), b)
}

// trimJournal drops a few of the oldest blocks, as far as size and age ask for
// it and everybody has been told.
func (t sourceTx) trimJournal(m *sourceMeta, maxBytes int64, before time.Time) error {
	const atMost = 8 // blocks a commit, so that trimming never stalls one
	j := t.journal()
	if j == nil {
		return nil
	}
	keep := t.needed(m)
	for range atMost {
		c := j.Cursor()
		k, v := c.First()
		if k == nil {
			return nil
		}
		seq := binary.BigEndian.Uint64(k)
		if seq > keep || seq > m.Seq {
			return nil
		}
		head, _, err := t.blockHead(seq, v)
		if err != nil {
			head = blockHead{count: 1} // damaged, and of no use to anybody
		}
		if seq+head.count-1 > keep {
			return nil
		}
		if int64(m.JournalBytes) <= maxBytes && !time.Unix(0, head.last).Before(before) {
			return nil
		}
		m.JournalBytes -= min(m.JournalBytes, uint64(len(v)))
		if err := j.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// needed is the seq up to which all handlers have been told.
func (t sourceTx) needed(m *sourceMeta) uint64 {
	keep := m.Told
	_ = t.handlerBox(t.root.Bucket(bucketHandlers)).each(func(_, v []byte) {
		if len(v) >= 8 { // the mark comes first
			keep = min(keep, binary.BigEndian.Uint64(v))
		}
	})
	return keep
}

// dropJournalAbove removes blocks that a staged relist left behind.
func (t sourceTx) dropJournalAbove(seq uint64) error {
	j := t.journal()
	if j == nil {
		return nil
	}
	for {
		k, _ := j.Cursor().Seek(u64(seq + 1))
		if k == nil {
			return nil
		}
		if err := j.Delete(k); err != nil {
			return err
		}
	}
}

// seekBlock finds the block that holds seq, or the first one after it. It is as
// stored.
func (t sourceTx) seekBlock(j *blocks, seq uint64) (first uint64, b []byte, err error) {
	c := j.Cursor()
	k, v := c.Seek(u64(seq))
	if k == nil || binary.BigEndian.Uint64(k) > seq {
		pk, pv := c.Prev()
		if k == nil {
			pk, pv = c.Last()
		}
		if pk != nil {
			prev := binary.BigEndian.Uint64(pk)
			head, _, err := t.blockHead(prev, pv)
			if err != nil {
				return 0, nil, err
			}
			if prev+head.count > seq {
				return prev, pv, nil
			}
		}
	}
	if k == nil {
		return 0, nil, nil
	}
	return binary.BigEndian.Uint64(k), v, nil
}
