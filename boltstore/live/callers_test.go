package live

import (
	"errors"
	"testing"
)

// TestErrorsOfTheCaller: an error of the writer that takes the copy is not the owner's. A full
// disk here would be looked for there.
func TestErrorsOfTheCaller(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 3, 1)
	start(t, db, defaultLimits)
	own := errors.New("the disk is full")
	if err := dial(t, path).Snapshot(t.Context(), failing{own}); !errors.Is(err, own) || err.Error() != own.Error() {
		t.Error(err)
	}
}

type failing struct{ err error }

// Write implements io.Writer.
func (f failing) Write([]byte) (int, error) { return 0, f.err }
