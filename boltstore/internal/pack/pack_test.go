package pack

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/internal/podgen"
)

func pod(t *testing.T, i int) []byte {
	t.Helper()
	b, err := podgen.New(1).Pod(i).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPack: what is short or would hardly shrink stays as it is. Anything else comes back.
func TestPack(t *testing.T) {
	same := func(n int) []byte { return bytes.Repeat([]byte("a"), n) }
	for _, c := range []struct {
		name   string
		b      []byte
		packed bool
	}{
		{"a pod", pod(t, 7), true},
		{"as short as may be", same(packMin), true},
		{"too short", same(packMin - 1), false},
		{"large", same(3 << 20), true},
		{"of no pattern", noise(2000), false},
		{"empty", nil, false},
	} {
		packed := Pack(c.b)
		if (packed != nil) != c.packed || len(packed) > len(c.b) {
			t.Errorf("%s: %d bytes became %d", c.name, len(c.b), len(packed))
			continue
		}
		if packed == nil {
			continue
		}
		for _, buf := range [][]byte{nil, make([]byte, 3), make([]byte, 0, len(c.b))} {
			if got, err := Unpack(packed, len(c.b), buf); err != nil || !bytes.Equal(got, c.b) {
				t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
			} else if cap(buf) >= len(c.b) && &got[0] != &buf[:1][0] {
				t.Errorf("%s: it does not lie in the buffer", c.name)
			}
		}
		for name, damaged := range map[string]func() ([]byte, error){
			"shorter": func() ([]byte, error) { return Unpack(packed, len(c.b)+1, nil) },
			"longer":  func() ([]byte, error) { return Unpack(packed, len(c.b)-1, nil) },
			"cut":     func() ([]byte, error) { return Unpack(packed[:len(packed)-1], len(c.b), nil) },
			"no zstd": func() ([]byte, error) { return Unpack(c.b, len(c.b), nil) },
		} {
			if got, err := damaged(); !errors.Is(err, faults.ErrDamaged) {
				t.Errorf("%s, %s: %d bytes, %v", c.name, name, len(got), err)
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

// TestRatio: pods that the dictionary was not made of shrink to three tenths.
func TestRatio(t *testing.T) {
	in, out := 0, 0
	for i := range 500 {
		b := pod(t, i*5+3)
		in, out = in+len(b), out+len(Pack(b))
	}
	if ratio := float64(out) / float64(in); ratio > 0.3 {
		t.Errorf("packed to %.3f", ratio)
	}
}
