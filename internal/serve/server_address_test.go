package serve

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestOffLoopback: an address that other machines can reach needs TLS, and the refusal shows
// it, even if it is empty.
func TestOffLoopback(t *testing.T) {
	s := start(t, Options{File: fileOf(t, apifile.Options{})})
	for _, addr := range []string{"", ":0", "0.0.0.0:0", "[::]:0"} {
		if _, _, err := s.Loopback(addr, "token"); !errors.Is(err, ErrOffLoopback) ||
			!strings.Contains(err.Error(), `"`+addr+`"`) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}
