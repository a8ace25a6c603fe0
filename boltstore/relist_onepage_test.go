package boltstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestFirstListOfOnePage: a first list of one small page writes once, when it is committed,
// also if the commit fails at first. Meanwhile the program adds an index. On
// a disk that syncs slowly, more writes would hold up the first start of a program with
// many small types.
func TestFirstListOfOnePage(t *testing.T) {
	for name, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}} {
		for _, c := range []struct {
			objects int
			more    bool // a page comes although the one before was the last
		}{{0, false}, {1, false}, {40, false}, {40, true}} {
			t.Run(fmt.Sprint(name, c), func(t *testing.T) {
				path := testPath(t)
				db := openTest(t, path, o)
				versions := map[string]string{"words": "1"} // otherwise it is built beside other work
				s := claimTest(t, db, Claim{IndexVersions: versions,
					Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
				srv := listed(c.objects)
				for _, obj := range srv {
					obj.Data["large"] = strings.Repeat("z", 8<<10)
				}
				began := time.Now()
				before := db.Stats().Transactions.Count()
				_, err := s.Upstream.BeginRelist(RelistOptions{
					OnError: func(_ runtime.Object, err error) { t.Error(err) }})
				must(t, err)
				r, err := s.Upstream.BeginRelist(RelistOptions{
					OnError: func(_ runtime.Object, err error) { t.Error(err) }})
				must(t, err)
				must(t, r.PageTo(srv.list(), listing.Progress{ResourceVersion: "100", Newest: "100", Began: began}))
				nothing(t, s)
				if n := db.Stats().Transactions.Count() - before; n != 0 || !r.Consistent() {
					t.Errorf("%d transactions before the commit, consistent %v", n, r.Consistent())
				}
				if n := db.Stats().Transactions.Count() - before; n != 0 {
					t.Errorf("giving up a list that has written nothing took %d transactions", n)
				}
				r, err = s.Upstream.BeginRelist(RelistOptions{
					OnError: func(_ runtime.Object, err error) { t.Error(err) }})
				must(t, err)
				must(t, r.PageTo(srv.list(), listing.Progress{ResourceVersion: "100", Newest: "100", Began: began}))
				if c.more {
					obj := configMap("ns0", "more", 99, map[string]string{"words": "x"})
					must(t, r.Page([]runtime.Object{obj}))
					srv.set(obj)
				}
				must(t, s.AddIndexers(cache.Indexers{"words": indexers["words"]}))
				db.h.setHook(func(*bolt.Tx) error { return errRefused })
				if _, err := r.Commit("100", began); !errors.Is(err, errRefused) {
					t.Fatal(err)
				}
				db.h.setHook(nil)
				if c.objects > 1 && !c.more {
					db.h.now.Load().MaxSize = 1 // so it fails once the transaction is complete
					if _, err := r.Commit("100", began); !errors.Is(err, berrors.ErrMaxSizeReached) {
						t.Fatal(err)
					}
					db.h.now.Load().MaxSize = 0
				}
				before = db.Stats().Transactions.Count()
				_, err = r.Commit("100", began)
				must(t, err)
				if n := db.Stats().Transactions.Count() - before; n != 1 && !c.more {
					t.Errorf("the list took %d transactions", n)
				}
				wants(t, "after the list", s, srv)
				closeTest(t, db)
				db = openTest(t, path, o)
				s = claimTest(t, db, Claim{IndexVersions: versions, Indexers: cache.Indexers{
					cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "words": indexers["words"],
				}})
				sameObjects(t, "in the next life", srv.anys(), s.List())
				if st := s.State(); !st.Synced || st.ResourceVersion != "100" {
					t.Errorf("the next life has %+v", st)
				}
			})
		}
	}
}
