package pack

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// trained returns a dictionary of texts that have much in common.
func trained(t *testing.T, version uint32) *Packer {
	t.Helper()
	var s Sampler
	for i := range MaxSamples {
		s.Add(text(i))
	}
	p, err := Train(version, s.Samples)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(i int) []byte {
	return fmt.Appendf(nil, "%d: the quick brown fox jumps over %d lazy dogs, and the sleepy cat of house %d looks on without a word about it", i*7919, i, i*i)
}

// TestPack: what is short or would hardly shrink stays as it is. Anything else comes back.
func TestPack(t *testing.T) {
	with := trained(t, 2)
	same := func(n int) []byte { return bytes.Repeat([]byte("a"), n) }
	for _, c := range []struct {
		name   string
		by     *Packer
		b      []byte
		packed bool
	}{
		{"like the samples", with, text(1000), true},
		{"as short as may be", with, same(packMin), true},
		{"too short", with, same(packMin - 1), false},
		{"without a dictionary", plainPacker, same(packPlainMin), true},
		{"too short without a dictionary", plainPacker, same(packPlainMin - 1), false},
		{"of no pattern", with, noise(2000), false},
		{"empty", with, nil, false},
	} {
		packed := c.by.Pack(c.b)
		if (packed != nil) != c.packed || len(packed) > len(c.b) {
			t.Errorf("%s: %d bytes became %d", c.name, len(c.b), len(packed))
			continue
		}
		if packed == nil {
			continue
		}
		for _, buf := range [][]byte{nil, make([]byte, 3), make([]byte, 0, len(c.b))} {
			if got, err := c.by.Unpack(packed, len(c.b), buf); err != nil || !bytes.Equal(got, c.b) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			} else if cap(buf) >= len(c.b) && &got[0] != &buf[:1][0] {
				t.Errorf("%s: it does not lie in the buffer", c.name)
			}
		}
		for name, damaged := range map[string]func() ([]byte, error){
			"shorter": func() ([]byte, error) { return c.by.Unpack(packed, len(c.b)+1, nil) },
			"longer":  func() ([]byte, error) { return c.by.Unpack(packed, len(c.b)-1, nil) },
			"cut":     func() ([]byte, error) { return c.by.Unpack(packed[:len(packed)-1], len(c.b), nil) },
			"no zstd": func() ([]byte, error) { return c.by.Unpack(c.b, len(c.b), nil) },
		} {
			if got, err := damaged(); !errors.Is(err, faults.ErrDamaged) {
				t.Errorf("%s, %s: %q, %v", c.name, name, got, err)
			}
		}
	}
}

// noise is without a pattern, and the same each time.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// fileOf is a file that has these dictionaries. nil cannot be read.
func fileOf(dicts map[uint32][]byte) Dicts {
	return func(fn func(version uint32, read func() ([]byte, float64, error))) error {
		for v, d := range dicts {
			fn(v, func() ([]byte, float64, error) {
				if d == nil {
					return nil, 0, errors.New("a bad page")
				}
				return d, 0.5, nil
			})
		}
		return nil
	}
}

// TestSet: the dictionary of the highest version packs, whatever the order in which they
// come, and a version is never used again. A damaged or missing one is an error for its
// records only.
func TestSet(t *testing.T) {
	two, three := trained(t, 2), trained(t, 3)
	s := NewSet()
	if s.Current() != plainPacker {
		t.Error("a new set packs by a dictionary")
	}
	s.Add(three)
	s.Add(two)
	if s.Current() != three || !s.Has(two) || s.NextVersion(2) != 4 || s.NextVersion(9) != 9 {
		t.Errorf("version %d packs, %d is next", s.Current().Version, s.NextVersion(2))
	}
	if err := s.Load(fileOf(map[uint32][]byte{2: trained(t, 2).Dict, 5: nil, 6: []byte("no dictionary")})); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(2); got != two {
		t.Errorf("a known dictionary was read again: %v", err)
	}
	for version, says := range map[uint32]string{5: "a bad page", 6: "dictionary 6", 7: "missing"} {
		if got, err := s.Get(version); got != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%d: %v, %v", version, got, err)
		}
	}
	if got, err := s.Get(format.PackedPlain); err != nil || got != plainPacker {
		t.Errorf("without a dictionary: %v, %v", got, err)
	}
	s.Forget()
	if got, err := s.Get(3); s.Current() != plainPacker || got != three {
		t.Errorf("after Forget: %v, %v", got, err)
	}
	if err := s.Reload(fileOf(map[uint32][]byte{2: two.Dict})); err != nil {
		t.Fatal(err)
	}
	if got := s.Current(); got.Version != 2 || got.Ratio != 0.5 || s.Has(two) || s.Has(three) || s.NextVersion(1) != 4 {
		t.Errorf("after Reload version %d packs, %d is next", got.Version, s.NextVersion(1))
	}
	if dicts := s.Dicts(); len(dicts) != 1 || !bytes.Equal(dicts[2], two.Dict) {
		t.Errorf("after Reload there are %d dictionaries", len(dicts))
	}
	s.Reset()
	if len(s.Dicts()) > 0 || s.Current() != plainPacker || s.NextVersion(1) != 4 {
		t.Errorf("after Reset: %d dictionaries, %d is next", len(s.Dicts()), s.NextVersion(1))
	}
}

// TestDue: one training at a time, an hour apart, and then only if the newest dictionary packs
// far worse than it packed its samples.
func TestDue(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := NewSet()
	if !s.Due(now) || !s.Begin(now) || s.Due(now) || s.Begin(now.Add(2*Interval)) {
		t.Error("two trainings at once")
	}
	s.End()
	if s.Begin(now.Add(Interval-1)) || !s.Due(now.Add(Interval)) {
		t.Error("not an hour apart")
	}
	now = now.Add(Interval)
	p := trained(t, 2)
	s.Add(p)
	for _, c := range []struct {
		in  int64
		by  float64 // times the ratio of the samples
		due bool
	}{{worseAfter, worse + 0.01, true}, {worseAfter - 1, 10, false}, {worseAfter, worse - 0.01, false}, {0, 0, false}} {
		p.in.Store(c.in)
		p.out.Store(int64(c.by * p.Ratio * float64(c.in)))
		if s.Due(now) != c.due {
			t.Errorf("%d bytes in %.2f of the samples' ratio: %v", c.in, c.by, !c.due)
		}
	}
	if p.in.Store(0); p.Pack(text(1)) == nil || p.in.Load() != int64(len(text(1))) || p.out.Load() == 0 {
		t.Errorf("%d bytes in, %d out", p.in.Load(), p.out.Load())
	}
	if fresh := trained(t, 3); fresh.in.Load() != 0 || fresh.out.Load() != 0 {
		t.Error("its samples count as packed")
	}
}

// TestSampler: samples are bounded in number and in bytes; one that is too large leaves room
// for others.
func TestSampler(t *testing.T) {
	var few, large Sampler
	for range MaxSamples + 1 {
		few.Add([]byte("a"))
	}
	large.Add(make([]byte, MaxSampleBytes+1))
	large.Add(make([]byte, MaxSampleBytes))
	large.Add([]byte("a"))
	if len(few.Samples) != MaxSamples || len(large.Samples) != 1 {
		t.Errorf("%d and %d samples", len(few.Samples), len(large.Samples))
	}
	if _, err := Train(2, few.Samples[:12]); err == nil {
		t.Error("three samples to measure with were enough")
	}
}
