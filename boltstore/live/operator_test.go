package live

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestSilentOwner: the error for an owner that does not answer says so, without the
// URL.
func TestSilentOwner(t *testing.T) {
	path := testPath(t)
	world(t, path, 1, 1)
	l, err := listenAt(path+".sock", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := dial(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = c.Status(ctx)
	if err == nil || !strings.Contains(err.Error(), "it does not answer") || strings.Contains(err.Error(), "http://") {
		t.Error(err)
	}
}
