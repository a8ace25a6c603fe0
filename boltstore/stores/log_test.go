package stores_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

// TestLog: if a method cannot return an error, the log says what went wrong. It also says
// that a store begins empty.
func TestLog(t *testing.T) {
	var mu sync.Mutex
	var said []string
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, args)
	}, funcr.Options{})
	count := func(words string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range said {
			n += strings.Count(s, words)
		}
		return n
	}
	path := newPath(t)
	for _, c := range []boltstore.Claim{
		{Source: tokens, Example: &token{}, KeyFunc: tokenKey},
		{Source: tokens, Example: &otherToken{}, KeyFunc: cache.MetaNamespaceKeyFunc},
	} {
		db := open(t, path, boltstore.Options{Logger: &log})
		s, err := db.Claim(c)
		if err != nil {
			t.Fatal(err)
		}
		expiring := must(stores.NewTTLStore(s, time.Hour))(t)
		byKey := must(stores.NewThreadSafeStore(s, nil))(t)
		if c.KeyFunc != nil && count("the store begins empty") == 0 {
			must(0, expiring.Add(&token{"a", "v"}))(t)
		}
		closeDB(t, db)
		expiring.List()
		expiring.List()
		byKey.Get("a")
	}
	for words, want := range map[string]int{"the store begins empty": 1, "A list of entries is not whole": 2,
		"A call of a store failed": 2} {
		if n := count(words); n != want {
			t.Errorf("%q was logged %d times, want %d: %q", words, n, want, said)
		}
	}
}
