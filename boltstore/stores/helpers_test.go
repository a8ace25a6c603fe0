package stores_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// token is an entry without Kubernetes metadata.
type token struct {
	Name, Value string
}

func (t *token) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (t *token) DeepCopyObject() runtime.Object {
	c := *t
	return &c
}

func tokenKey(obj any) (string, error) {
	t, ok := obj.(*token)
	if !ok {
		return "", errors.New("no token")
	}
	return t.Name, nil
}

var tokens = boltstore.Source{Group: "example.com", Version: "v1", Resource: "tokens", Form: boltstore.FormTyped}

// byWord indexes a token by the words of its value.
var byWord = cache.Indexers{"word": func(obj any) ([]string, error) { return strings.Fields(obj.(*token).Value), nil }}

func open(t testing.TB, path string, o boltstore.Options) *boltstore.DB {
	t.Helper()
	o.Window = time.Nanosecond
	o.Durability = boltstore.DurabilityProcess
	db, err := boltstore.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDB(t, db) })
	return db
}

// closeDB verifies and closes the file. A second call does nothing.
func closeDB(t testing.TB, db *boltstore.DB) {
	t.Helper()
	r, err := db.Check()
	if errors.Is(err, boltstore.ErrClosed) {
		return
	}
	if err != nil || !r.Sound() {
		t.Errorf("the file is not sound: %+v %v", r, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func claim(t testing.TB, db *boltstore.DB) *boltstore.Claimed {
	t.Helper()
	s, err := db.Claim(boltstore.Claim{Source: tokens, Example: &token{}, KeyFunc: tokenKey,
		Indexers: maps.Clone(byWord), IndexVersions: map[string]string{"word": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newClaim(t testing.TB) *boltstore.Claimed {
	t.Helper()
	return claim(t, open(t, newPath(t), boltstore.Options{}))
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "stores.db") }

// must returns a function that returns v, and ends the test if there is an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// text returns tokens as text, in the order of their names.
func text(objs []any) string {
	all := []string{}
	for _, o := range objs {
		all = append(all, o.(*token).Name+"="+o.(*token).Value)
	}
	return fmt.Sprint(sorted(all))
}

// shown returns the result of a read as text.
func shown(obj any, exists bool, err error) string {
	if obj == nil {
		return fmt.Sprint("nothing ", exists, err)
	}
	return fmt.Sprint(text([]any{obj}), exists, err)
}

// sorted sorts in place, and leaves nil nil.
func sorted[T cmp.Ordered](s []T) []T {
	slices.Sort(s)
	return s
}
