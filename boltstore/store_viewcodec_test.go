package boltstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// TestViewOfAClaimWithACodec: while a source is claimed with a codec of the program's
// own, a view reads it with that codec, even if client-go's scheme knows the type. Otherwise
// the error of View names the codec, and nothing counts as damaged.
func TestViewOfAClaimWithACodec(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	own, err := codec.For(configMap("", "", 0, nil))
	must(t, err)
	claim := Claim{Codec: otherForm{own}, Indexers: indexers}
	closed := claimTest(t, db, claim)
	closed.Release()
	if _, err := db.View(configMaps); err != nil {
		t.Errorf("nothing is stored yet: %v", err)
	}
	srv := server{}
	srv.set(configMap("ns", "a", 1, map[string]string{"words": "x"}))
	relist(t, claimTest(t, db, claim), "5", RelistOptions{}, srv.list(), 5)
	closeTest(t, db)

	db = openTest(t, path, Options{})
	if _, err := db.View(configMaps); err == nil || errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "codec of a program's own, 200") {
		t.Errorf("a view that does not know the codec: %v", err)
	}
	s := claimTest(t, db, claim)
	v, err := db.View(configMaps)
	must(t, err)
	if objs, err := v.ListErr(); err != nil || len(objs) != 1 {
		t.Errorf("%d objects, %v", len(objs), err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("the claim is to be listed: %v", err)
	}
}
