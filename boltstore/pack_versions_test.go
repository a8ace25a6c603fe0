package boltstore

import (
	"errors"
	"testing"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/pack"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestDictionaryVersionsGoOn: a copied file does not use the version of a lost
// dictionary again, since objects in memory may be packed with it.
func TestDictionaryVersionsGoOn(t *testing.T) {
	for _, o := range []Options{{}, {Keyset: sealtest.Keyset()}} {
		o.Compression = CompressionZstd
		db := openTest(t, testPath(t), o)
		s := claimTest(t, db, podClaim())
		relist(t, s, "1000", RelistOptions{}, somePods(0, 120), 60)
		if err := s.SetAside(); err != nil {
			t.Fatal(err)
		}
		if o.Keyset != nil {
			s.Release()
			db = rotated(t, db)
			s = claimTest(t, db, podClaim())
		} else {
			db.healing().heal(errors.New("said the test"), db.h.now.Load())
		}
		s.packs = pack.NewSet() // as in another process
		db.packs[s.id] = s.packs
		if err := s.view(func(_ *sourceMeta, src sourceTx) error { return s.packs.Load(src.dictionaries) }); err != nil {
			t.Fatal(err)
		}
		relist(t, s, "1000", RelistOptions{}, somePods(0, 120), 60)
		if v := dictVersions(t, s); len(v) != 1 || v[0] != format.PackedByDict+1 {
			t.Errorf("versions %v", v)
		}
	}
}
