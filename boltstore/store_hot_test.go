package boltstore

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestHotObjectsOfManySources: the decoded objects that sources keep for their readers have
// a bound that does not grow with the number of sources.
func TestHotObjectsOfManySources(t *testing.T) {
	const hot, sources = 50_000, 40
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: -1, hotBytes: hot})
	var all []*Claimed
	for i := range sources {
		ns := fmt.Sprintf("ns%02d", i)
		s := claimTest(t, db, Claim{Source: Source{Version: "v1", Resource: "configmaps", Namespace: ns,
			Form: FormTyped}})
		var list []runtime.Object
		for j := range 20 {
			list = append(list, configMap(ns, fmt.Sprint(j), j+1, map[string]string{"fill": strings.Repeat("x", 1000)}))
		}
		relist(t, s, "100", RelistOptions{}, list, 100)
		all = append(all, s)
	}
	used := func() (sum, most int64) {
		for _, s := range all {
			for _, key := range s.ListKeys() {
				if _, ok, err := s.GetByKey(key); !ok || err != nil {
					t.Fatal(key, ok, err)
				}
			}
			sum, most = sum+s.reader.hot.used, max(most, s.reader.hot.used)
		}
		return sum, most
	}
	if sum, most := used(); sum > hotSources*hot || most > hot*hotSources/sources || most == 0 {
		t.Errorf("%d bytes of %d sources, %d of one", sum, sources, most)
	}
	for _, s := range all[hotSources:] {
		s.Release()
	}
	all = all[:hotSources]
	if _, most := used(); most > hot || most < hot/2 {
		t.Errorf("%d bytes of one of %d sources", most, hotSources)
	}
}
