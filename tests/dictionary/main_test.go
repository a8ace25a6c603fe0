package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDictionary: the embedded dictionary is the one that this program makes.
func TestDictionary(t *testing.T) {
	is, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	made, err := dictionary()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(is, made) {
		t.Errorf("%s has %d other bytes than the %d that are made", file, len(is), len(made))
	}
	if len(made) > 64<<10 {
		t.Errorf("it has %d bytes", len(made))
	}
}
