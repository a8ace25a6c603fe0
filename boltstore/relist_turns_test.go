package boltstore

import (
	"context"
	"path/filepath"
	"testing"
)

func TestMaxRelists(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "test.db"), Options{maxRelists: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := claimTest(t, db, Claim{})
	one, err := s.Upstream.WaitForTurn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Upstream.WaitForTurn(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Upstream.WaitForTurn(gone); err == nil {
		t.Fatal("a third turn")
	}
	one()
	if _, err := s.Upstream.WaitForTurn(t.Context()); err != nil {
		t.Fatal(err)
	}
}
