package pack

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/kubewake/kubewake/internal/podgen"
)

// TestTrain: a dictionary of a few pods packs others to a seventh, and training takes
// little memory, since a program may train while it catches up.
func TestTrain(t *testing.T) {
	g := podgen.New(1)
	pod := func(i int) []byte {
		b, err := g.Pod(i).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var s Sampler
	for i := range MaxSamples {
		s.Add(pod(i * 20))
	}
	plainPacker.Pack(pod(0)) // makes its encoders
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := Train(2, s.Samples)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("training allocates %d bytes", n)
	}
	if len(p.Dict) > dictBytes+4096 {
		t.Errorf("a dictionary of %d bytes", len(p.Dict))
	}
	in, out := 0, 0
	for i := range 500 {
		b := pod(i*5 + 3)
		packed := p.Pack(b)
		if plain, err := p.Unpack(packed, len(b), nil); err != nil || string(plain) != string(b) {
			t.Fatal("it comes back changed", err)
		}
		in, out = in+len(b), out+len(packed)
	}
	if ratio := float64(out) / float64(in); ratio > 0.16 {
		t.Errorf("packed to %.3f", ratio)
	}
}

// TestTrainOddSamples: samples that are short, equal or have nothing in common lead to
// a dictionary or an error.
func TestTrainOddSamples(t *testing.T) {
	for name, sample := range map[string]func(i int) []byte{
		"empty":   func(int) []byte { return nil },
		"short":   func(i int) []byte { return fmt.Append(nil, i) },
		"equal":   func(int) []byte { return []byte("the same in all of them, and not so short") },
		"nothing": func(i int) []byte { return fmt.Appendf(nil, "%x", i*i*7919+i) },
	} {
		t.Run(name, func(t *testing.T) {
			var samples [][]byte
			for i := range 64 {
				samples = append(samples, sample(i))
			}
			p, err := Train(2, samples)
			if (p == nil) == (err == nil) {
				t.Errorf("%v and %v", p, err)
			}
		})
	}
}
