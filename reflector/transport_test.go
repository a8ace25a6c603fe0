package reflector

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

// TestWrappedTwice: a config that is wrapped twice has one transport. Two would sift each
// other's answers: relists would be asked for again, and decoded as a whole.
func TestWrappedTwice(t *testing.T) {
	cfg := WrapConfig(&rest.Config{})
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return between{rt} })
	for range 2 {
		cfg = WrapConfig(rest.CopyConfig(cfg))
	}
	n := 0
	for rt := cfg.WrapTransport(http.DefaultTransport); rt != nil; {
		if _, ours := rt.(*transport); ours {
			n++
		}
		w, _ := rt.(interface{ WrappedRoundTripper() http.RoundTripper })
		if rt = nil; w != nil {
			rt = w.WrappedRoundTripper()
		}
	}
	if n != 1 {
		t.Errorf("%d transports", n)
	}
}

// between is a program's own transport.
type between struct{ http.RoundTripper }

func (b between) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }
