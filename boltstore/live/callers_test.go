package live

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestErrorsOfTheCaller: an error of the function or writer that takes the answer is not the
// owner's. A full disk here would be looked for there.
func TestErrorsOfTheCaller(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 3, 1)
	relist(t, s, 4, 1, "200") // history has the fourth
	start(t, db, defaultLimits)
	c, own := dial(t, path), errors.New("the disk is full")
	q := Query{Source: secrets, Secrets: true}
	byIndex := q
	byIndex.Index = "namespace"
	for name, err := range map[string]error{
		"objects":  c.Objects(t.Context(), q, func(*unstructured.Unstructured) error { return own }),
		"index":    c.Index(t.Context(), byIndex, func(IndexValue) error { return own }),
		"history":  c.History(t.Context(), q, func(Version) error { return own }),
		"snapshot": c.Snapshot(t.Context(), failing{own}),
	} {
		if !errors.Is(err, own) || err.Error() != own.Error() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failing struct{ err error }

// Write implements io.Writer.
func (f failing) Write([]byte) (int, error) { return 0, f.err }
