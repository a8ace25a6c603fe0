package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDiffOfMany: sets of many values are compared as those of a few are.
func TestDiffOfMany(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	some := func() (values []string) {
		for range rnd.IntN(60) {
			values = append(values, fmt.Sprint(rnd.IntN(40)))
		}
		return values
	}
	for range 2000 {
		old, next := some(), some()
		var want []string
		for _, v := range old {
			if !slices.Contains(next, v) && !slices.Contains(want, v) {
				want = append(want, v)
			}
		}
		if got, _ := Diff(old, next); !slices.Equal(got, want) {
			t.Fatalf("of %v, not in %v: %v, want %v", old, next, got, want)
		}
	}
}

func BenchmarkDiff(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000, 30_000} {
		var old, next []string
		for i := range n {
			old = append(old, fmt.Sprintf("10.244.%05d", i))
			next = append(next, fmt.Sprintf("10.244.%05d", i+1))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				Diff(old, next)
			}
		})
	}
}
