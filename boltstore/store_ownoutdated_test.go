package boltstore

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestWritesToOutdated: after an upgrade a program writes to a source of its own, whose
// objects are of another Go type. It finds its own writes, in this life and the next one.
// The earlier contents are set aside with the first write.
func TestWritesToOutdated(t *testing.T) {
	for name, write := range map[string]func(s *Claimed) error{
		"Add":     func(s *Claimed) error { return s.Add(at(2, "y")) },
		"Replace": func(s *Claimed) error { return s.Replace([]any{at(2, "y")}, "2") },
		"Transaction": func(s *Claimed) error {
			return asError(s.Transaction(cache.Transaction{Type: cache.TransactionTypeAdd, Object: at(2, "y")}))
		},
	} {
		for _, serve := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " serve ", serve), func(t *testing.T) {
				path := testPath(t)
				db := openTest(t, path, Options{Durability: DurabilityProcess})
				s := claimTest(t, db, Claim{Indexers: indexers})
				must(t, s.Replace([]any{configMap("a", "old", 1, map[string]string{"words": "x"})}, ""))
				must(t, s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
					m.TypeHash = "of an older build"
					return nil
				}))
				closeTest(t, db)

				db = openTest(t, path, Options{Durability: DurabilityProcess})
				s = claimTest(t, db, Claim{Indexers: indexers, ServeOutdated: serve})
				if n := len(s.List()); (n == 1) != serve {
					t.Errorf("at first there are %d", n)
				}
				s.Bookmark("1")
				if s.Outdated() == "" {
					t.Error("a bookmark has set the contents aside")
				}
				must(t, write(s))
				want := 1
				if serve && name != "Replace" {
					want = 2
				}
				check := func(life string) {
					t.Helper()
					if n := len(s.List()); n != want {
						t.Errorf("%s: %d objects, want %d", life, n, want)
					}
					if keys, err := s.IndexKeys("words", "y"); err != nil || len(keys) != 1 {
						t.Errorf("%s: %v %v", life, keys, err)
					}
				}
				check("this life")
				closeTest(t, db)
				db = openTest(t, path, Options{Durability: DurabilityProcess})
				s = claimTest(t, db, Claim{Indexers: indexers, ServeOutdated: want == 2})
				check("the next life")
			})
		}
	}
}
