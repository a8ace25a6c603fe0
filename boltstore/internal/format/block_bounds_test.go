package format

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// forged is a block whose sum is right, although no commit has written it.
func forged(count, size uint64, raw []byte) []byte {
	b := append(make([]byte, 5), 0)[:5]
	b[0] = blockVersion
	for _, n := range []uint64{count, 0, size} {
		b = binary.AppendUvarint(b, n)
	}
	b = zenc.EncodeAll(raw, b)
	binary.LittleEndian.PutUint32(b[1:5], owner.blockSum(7, b))
	return b
}

// TestForgedBlocks: a small block takes no more memory than the largest block that a commit
// writes, whatever it unpacks to and says about itself.
func TestForgedBlocks(t *testing.T) {
	const much = 300 << 20
	zeros := make([]byte, much)
	tiny := []byte(strings.Repeat("A\x00\x00\x00\x00", 2_000_000)) // entries without content
	for name, c := range map[string]struct {
		block []byte
		most  uint64
	}{
		"larger than any": {forged(1, much, zeros), 1 << 20},
		"says it is less": {forged(1, 1000, zeros), 1 << 20},
		"says it is more": {forged(1, 1<<40, zeros[:1000]), 1 << 20},
		"many entries":    {forged(uint64(len(tiny)/5), uint64(len(tiny)), tiny), 1 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := owner.UnpackBlock(7, c.block)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > c.most || !errors.Is(err, faults.ErrDamaged) {
			t.Errorf("%s: %d bytes took %d of memory, %v", name, len(c.block), took, err)
		}
	}
}
