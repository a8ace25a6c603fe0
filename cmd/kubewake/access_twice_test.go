package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/internal/serve"
)

// TestTwoServers: of two processes that begin to serve a file at the same moment one serves,
// and the kubeconfig is its own. The other says so. So it is with a kubeconfig of an earlier
// life.
func TestTwoServers(t *testing.T) {
	for range 2 {
		path := filepath.Join(t.TempDir(), "f.db")
		for life := range 2 {
			ends, errs := make(chan func() error, 2), make(chan error, 2)
			for range 2 {
				go func() {
					a := &access{socket: nobody, listen: "127.0.0.1:0", kubeconfig: beside}
					end, err := a.serve(nil, nil, path, t.Logf)
					ends <- end
					errs <- err
				}()
			}
			var refused []string
			for range 2 {
				if err := <-errs; err != nil {
					refused = append(refused, err.Error())
				}
			}
			if len(refused) != 1 || !strings.Contains(refused[0], "another process serves, at https://127.0.0.1:") {
				t.Errorf("life %d: refused %q", life, refused)
			}
			if !serve.Answers(path + ".kubeconfig") {
				t.Errorf("life %d: nobody answers at the kubeconfig's address", life)
			}
			for range 2 {
				if end := <-ends; end != nil {
					if err := end(); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}
