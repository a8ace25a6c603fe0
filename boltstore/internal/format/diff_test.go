package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// TestDiffIsSmall: similar states of an object give small diffs, whether or not a
// length has changed.
func TestDiffIsSmall(t *testing.T) {
	var pod []byte
	for i := range 600 {
		pod = fmt.Appendf(pod, "%x; ", i*i)
	}
	changed := func(at, drop int, with string) []byte {
		return append(append(append([]byte{}, pod[:at]...), with...), pod[at+drop:]...)
	}
	both := changed(100, 4, "12345")
	both = append(both[:3000], append([]byte("678"), both[3010:]...)...)
	for _, tc := range []struct {
		what   string
		record []byte
		most   int
	}{
		{"nothing", pod, 6},
		{"other bytes", changed(1000, 5, "12345"), 20},
		{"here and there", both, 30},
		{"some more", changed(1000, 0, "more, "), 20},
		{"some less", changed(1000, 10, ""), 20},
		{"at the beginning", changed(0, 1, "long "), 20},
		{"at the end", changed(len(pod), 0, "long"), 20},
		{"all but the beginning", append(bytes.Clone(pod[:50]), strings.Repeat("x", 100)...), 120},
		{"the order", append(bytes.Clone(pod[2000:]), pod[:2000]...), 20},
		{"itself, twice", append(bytes.Clone(pod), pod...), 2*len(pod) + 10}, // such a diff is not read
	} {
		d := DiffOf(pod, tc.record)
		if got := d.Apply(pod); !d.fits(pod) || !bytes.Equal(got, tc.record) {
			t.Errorf("%s: got %q", tc.what, got)
		}
		if len(d) > tc.most {
			t.Errorf("%s: %d bytes", tc.what, len(d))
		}
	}
	if d := DiffOf(pod, nil); d != nil || d.Apply(pod) != nil {
		t.Error("no record has a diff")
	}
}

// TestDiffOfAnotherBase: a diff from another base gives no record.
func TestDiffOfAnotherBase(t *testing.T) {
	base, record := []byte(strings.Repeat("abcdefgh", 100)), []byte(strings.Repeat("abcdefgh", 90))
	d := DiffOf(base, record)
	bomb := binary.AppendUvarint(nil, 17*800)
	for range 17 { // all of the base, and back to its beginning
		bomb = binary.AppendUvarint(bomb, 800)
		bomb = binary.AppendUvarint(binary.AppendVarint(bomb, -800), 0)
	}
	for _, bad := range []Diff{d[:len(d)-1], append(bytes.Clone(d), 0), append(Diff{1}, d[1:]...), {}, {5}, {0x80},
		bomb} {
		if bad.fits(base) || bad.Apply(base) != nil {
			t.Errorf("%x is taken for a diff", []byte(bad))
		}
	}
	if d.fits(base[:100]) {
		t.Error("a shorter base fits")
	}
}

// TestBlockWithABadDiff: a block with a bad diff is damaged, although its checksum is
// right. Otherwise the previous object would seem to be missing.
func TestBlockWithABadDiff(t *testing.T) {
	next := []byte("an object")
	for _, prev := range []Diff{{5}, DiffOf([]byte("an object that is longer"), []byte("an object that was longer"))} {
		drafts := []Draft{{Type: cache.Updated, Time: 1, Key: "a/b", Next: next,
			Prev: DiffOf(next, []byte("an old one"))}, {Type: cache.Updated, Time: 2, Key: "a/c", Next: next,
			Prev: prev}}
		if _, err := owner.UnpackBlock(7, owner.PackBlock(7, drafts[:1])); err != nil {
			t.Error(err)
		}
		if got, err := owner.UnpackBlock(7, owner.PackBlock(7, drafts)); !errors.Is(err, faults.ErrDamaged) {
			t.Errorf("%x: %d entries, %v", []byte(prev), len(got), err)
		}
	}
}

// FuzzDiff: each record comes back, and no bytes do harm as a diff.
func FuzzDiff(f *testing.F) {
	base := []byte("name: pod, status: running, since: 2026-01-01")
	for _, record := range []string{"", string(base), "name: pod, status: failed, since: 2026-01-02", "other",
		strings.Repeat("x", 100)} {
		f.Add(base, []byte(record))
		f.Add(base, []byte(DiffOf(base, []byte(record))))
	}
	f.Add([]byte(nil), []byte("record"))
	f.Fuzz(func(t *testing.T, base, record []byte) {
		if d := DiffOf(base, record); !bytes.Equal(d.Apply(base), record) || d.fits(base) != (record != nil) {
			t.Fatalf("base %q: %q came back as %q", base, record, d.Apply(base))
		}
		d := Diff(record)
		got := d.Apply(base)
		if (got != nil) != d.fits(base) || len(got) > len(base)+len(d) {
			t.Fatalf("base %q: diff %x is %d bytes", base, record, len(got))
		}
	})
}

func BenchmarkDiff(b *testing.B) {
	var base []byte
	for i := range 700 {
		base = fmt.Appendf(base, "%x; ", i*i)
	}
	for _, n := range []int{0, 1, 20} {
		record := bytes.Clone(base)
		for i := range n {
			copy(record[i*len(base)/n:], "12345")
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				DiffOf(base, record)
			}
		})
	}
}
