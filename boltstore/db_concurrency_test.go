package boltstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// Tests of two parts of the package at work at the same time.

// TestCompactEncrypted: an encrypted file is compacted, given its keyset.
func TestCompactEncrypted(t *testing.T) {
	path := testPath(t)
	o := Options{Keyset: sealtest.Keyset()}
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{Indexers: indexers})
	fill(t, s, 300, 20)
	closeTest(t, db)
	c, err := Compact(t.Context(), path, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.After >= c.Before {
		t.Errorf("%d bytes, before %d", c.After, c.Before)
	}
	db = openTest(t, path, o)
	s = claimTest(t, db, Claim{Indexers: indexers})
	if objs, err := s.ListErr(); err != nil || len(objs) == 0 {
		t.Fatalf("%d objects, %v", len(objs), err)
	}
}

// TestReleasedStoreDoesNotWrite: a released store does not overwrite what a later claim
// has written.
func TestReleasedStoreDoesNotWrite(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	before := claimTest(t, db, Claim{Indexers: indexers})
	if err := before.Add(configMap("ns", "one", 1, nil)); err != nil {
		t.Fatal(err)
	}
	h, _ := claimHandler(t, before, "test")
	before.Release()
	s := claimTest(t, db, Claim{Indexers: indexers})
	if err := s.Add(configMap("ns", "two", 2, nil)); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
	if err := before.Delivery.Remove("test"); !errors.Is(err, ErrClosed) {
		t.Errorf("remove a handler: %v", err)
	}
	err := before.Upstream.WriteFacts(func(f *listing.Facts) { f.Server.Address = "other" })
	if !errors.Is(err, ErrClosed) {
		t.Errorf("write the facts: %v", err)
	}
	if err := before.Upstream.Empty(); !errors.Is(err, ErrClosed) {
		t.Errorf("set aside: %v", err)
	}
	if err := before.AddIndexers(cache.Indexers{"more": indexers["words"]}); !errors.Is(err, ErrClosed) {
		t.Errorf("add indexers: %v", err)
	}
	before.handlers.told.Store(1000)
	before.Release()
	if objs, err := s.ListErr(); err != nil || len(objs) != 2 {
		t.Fatalf("%d objects, %v", len(objs), err)
	}
}

// TestConversionBehindLink: the path is a link. Encrypting the file, or replacing a
// damaged one, leaves nothing readable where the link leads.
func TestConversionBehindLink(t *testing.T) {
	real, path := testPath(t), filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(real, path); err != nil {
		t.Skip("this system, or its user, makes no symbolic links: ", err)
	}
	db, err := Open(real, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{})
	if err := s.Add(configMap("ns", "one", 1, map[string]string{"a": "readable"})); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{AllowUnsafePath: true, Keyset: sealtest.Keyset()})
	db = saved(t, db)
	if st, err := os.Lstat(path); err != nil || st.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v %v", st, err)
	}
	content, err := os.ReadFile(real)
	if err != nil || bytes.Contains(content, []byte("readable")) {
		t.Errorf("the file is not encrypted: %v", err)
	}
	s = claimTest(t, db, Claim{})
	if _, ok, err := s.GetByKey("ns/one"); !ok || err != nil {
		t.Error(ok, err)
	}
}
