package live

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/history"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestOlderOwner: an owner that knows neither indices nor earlier states says so. It is
// not asked in a way that would make it show the object's present state.
func TestOlderOwner(t *testing.T) {
	path := testPath(t)
	sock, err := SocketPath(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/objects", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte(`{"metadata":{"name":"now"}}`)); err != nil {
			t.Error(err)
		}
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // until it is closed
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c := dial(t, path)
	at := history.Moment{ResourceVersion: "1"}
	for what, err := range map[string]error{
		"at": c.Objects(t.Context(), Query{Source: secrets, Key: "a/b", At: at}, func(u *unstructured.Unstructured) error {
			t.Errorf("shown %v", u.Object)
			return nil
		}),
		"index": c.Index(t.Context(), Query{Source: secrets, Index: "namespace"}, func(IndexValue) error { return nil }),
	} {
		if err == nil || !strings.Contains(err.Error(), "take a snapshot of the file, and read that") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
