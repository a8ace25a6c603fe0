package boltstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestMomentOfLongKeys: the pages of a moment have all objects in the order of the file, even
// if it has only the hashes of some keys.
func TestMomentOfLongKeys(t *testing.T) {
	names := func(to map[string]runtime.Object, ns, name string, n int) {
		for i := range n {
			o := configMap(ns, fmt.Sprint(name, i), 10, nil)
			to[ns+"/"+o.Name] = o
		}
	}
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprint("long ", long), func(t *testing.T) {
			s := claimTest(t, openTest(t, testPath(t), Options{}), Claim{})
			then := map[string]runtime.Object{}
			names(then, "ns", "short", 30)
			names(then, "other", "short", 30)
			if long {
				names(then, "ns", strings.Repeat("m", 600), 20)
				names(then, "ns", strings.Repeat("z", 508), 12) // on both sides of the limit
			}
			relist(t, s, "10", RelistOptions{}, slices.Collect(maps.Values(then)), 7)
			before, _, err := s.Moment("")
			must(t, err)
			now := maps.Clone(then)
			maps.DeleteFunc(now, func(key string, _ runtime.Object) bool { return strings.HasSuffix(key, "3") })
			if long {
				names(now, "ns", strings.Repeat("k", 700), 5)
			}
			relist(t, s, "20", RelistOptions{}, slices.Collect(maps.Values(now)), 7)
			after, _, err := s.Moment("")
			must(t, err)
			for what, c := range map[string]struct {
				at   Moment
				want map[string]runtime.Object
			}{"then": {before, then}, "now": {after, now}} {
				for _, prefix := range []string{
					"", "ns/", "ns/s", "ns/" + strings.Repeat("m", 600), "ns/" + strings.Repeat("z", 508),
				} {
					others := func(key string) bool { return !strings.HasPrefix(key, prefix) }
					want := slices.DeleteFunc(slices.Sorted(maps.Keys(c.want)), others)
					got, err := contentAt(s.Store, c.at, prefix, 3)
					if keys := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(keys, want) {
						t.Errorf("%s, prefix of %d bytes: %d objects of %d, %v",
							what, len(prefix), len(keys), len(want), err)
					}
				}
			}
		})
	}
}
