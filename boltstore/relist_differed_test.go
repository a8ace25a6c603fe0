package boltstore

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestDiffered: what changed after the file's version is no difference that the watch has
// left out. What an audit finds at the file's version is, and an object that is gone.
func TestDiffered(t *testing.T) {
	named := func(name string, rv int, content string) runtime.Object {
		return configMap("a", name, rv, map[string]string{"words": content})
	}
	for _, c := range []struct {
		name   string
		audit  bool
		listed []runtime.Object
		at     string
		want   uint64
	}{
		{"the version was too old", false, []runtime.Object{named("x", 30, "new")}, "40", 0},
		{"an audit of a busy source", true, []runtime.Object{named("x", 30, "new"), named("y", 11, "old")}, "40", 0},
		{"a change was left out", true, []runtime.Object{named("x", 15, "new"), named("y", 11, "old")}, "40", 1},
		{"a delete was left out", true, []runtime.Object{named("x", 10, "old")}, "20", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
			s := claimTest(t, db, Claim{})
			relist(t, s, "20", RelistOptions{}, []runtime.Object{named("x", 10, "old"), named("y", 11, "old")}, 10)
			if st := s.State(); st.Differed != 0 {
				t.Errorf("a first list: %d", st.Differed)
			}
			relist(t, s, c.at, RelistOptions{Audit: c.audit}, c.listed, 10)
			if st := s.State(); st.Differed != c.want {
				t.Errorf("%d differed, not %d", st.Differed, c.want)
			}
			closeTest(t, db)
		})
	}
}
