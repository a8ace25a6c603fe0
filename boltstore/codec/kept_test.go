package codec_test

import (
	"fmt"
	"testing"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// TestCustomResourcesAreKept: ordinary custom resources are accepted, and come back
// whole.
func TestCustomResourcesAreKept(t *testing.T) {
	c := codecFor(t, &crd{})
	for seed := range int64(200) {
		obj := &crd{}
		filler(seed, seed%2 == 1).MaxDepth(12).Fill(obj)
		b, err := c.Append(nil, obj)
		if err == nil {
			err = codec.RoundTrip(c, b, obj)
		}
		if err != nil {
			t.Fatal(fmt.Errorf("%d: %w", seed, err))
		}
	}
	for _, k := range kinds() {
		obj := newOf(k)
		filler(1, true).Fill(obj)
		c := codecFor(t, obj)
		b, err := c.Append(nil, obj)
		if err == nil {
			err = codec.RoundTrip(c, b, obj)
		}
		if err != nil {
			t.Errorf("%v: %v", k, err)
		}
	}
}
