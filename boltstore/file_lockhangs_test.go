package boltstore

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

// TestLockThatHangs: where the system does not answer the request for the file's lock, as
// with the server of a network file system gone, the log says within seconds what Open
// waits for. A lock that is answered at once says nothing.
func TestLockThatHangs(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		path := testPath(t)
		closeTest(t, openTest(t, path, Options{}))
		lines := make(chan string, 100)
		log := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
		hangs, goOn := false, make(chan struct{})
		o := Options{ReadOnly: readOnly, Logger: &log, op: func(op, at string) error {
			if op == "lock" && hangs {
				if at != path {
					t.Errorf("the lock of %s, not %s", at, path)
				}
				<-goOn
			}
			return nil
		}}
		closeTest(t, openTest(t, path, o))
		select {
		case line := <-lines:
			t.Error(line)
		default:
		}
		hangs = true
		opened := make(chan error, 1)
		go func() {
			db, err := Open(path, o)
			if err == nil {
				err = db.Close()
			}
			opened <- err
		}()
		select {
		case line := <-lines:
			if !strings.Contains(line, path) || !strings.Contains(line, `"operation"="lock"`) {
				t.Error(line)
			}
		case err := <-opened:
			t.Fatalf("it does not wait: %v", err)
		case <-time.After(time.Minute):
			t.Error("nothing is said")
		}
		close(goOn)
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
}
