package boltstore

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestPageOfNone: a caller that asks for pages of no objects, or fewer, gets to the end, and
// the file does not count as damaged.
func TestPageOfNone(t *testing.T) {
	for _, n := range []int{0, -1} {
		s := claimTest(t, openTest(t, testPath(t), Options{}), Claim{Indexers: indexers})
		relist(t, s, "1", RelistOptions{},
			[]runtime.Object{configMap("a", "1", 1, nil), configMap("a", "2", 1, nil), configMap("a", "3", 1, nil)}, 3)
		for name, read := range map[string]func(from []byte) (int, []byte, error){
			"Page": func(from []byte) (int, []byte, error) {
				p, err := s.Page(from, n)
				return len(p.Keys), p.Next, err
			},
			"ServerPage": func(from []byte) (int, []byte, error) {
				p, err := s.Delivery.ServerPage(from, n)
				return len(p.Keys), p.Next, err
			},
			"PageStored": func(from []byte) (int, []byte, error) {
				objs, next, err := s.Filled.PageStored(from, n)
				return len(objs), next, err
			},
		} {
			all, from := 0, []byte(nil)
			for pages := 1; ; pages++ {
				got, next, err := read(from)
				must(t, err)
				if all, from = all+got, next; next == nil || pages == 4 {
					break
				}
			}
			if all != 3 || s.Err() != nil {
				t.Errorf("%s of %d: %d objects, %v", name, n, all, s.Err())
			}
		}
		at, _, err := s.Moment("")
		must(t, err)
		if keys, _, next, err := s.PageAt(at, "", nil, n); err != nil || len(keys) != 1 || next == nil {
			t.Errorf("PageAt of %d: %v %q %v", n, keys, next, err)
		}
	}
}
