//go:build unix

package pages

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestMapped: a mapped file reads as the file does. A part that cannot be read, as of a
// failing disk or of a file that is cut meanwhile, is an error and ends nothing.
func TestMapped(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 10
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	r, unmap := mapFile(f, size)
	defer unmap()
	if _, ok := r.(mapped); !ok {
		t.Fatalf("it is not mapped: %T", r)
	}
	for _, tc := range []struct{ at, n, want int64 }{{0, 16, 16}, {1000, 5000, 5000}, {size - 10, 20, 10}, {size, 1, 0}, {size + 1, 1, 0}, {-1, 1, 0}} {
		b := make([]byte, tc.n)
		n, err := r.ReadAt(b, tc.at)
		if int64(n) != tc.want || (err == nil) != (tc.want == tc.n) || err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%+v: %d %v", tc, n, err)
		}
		if n > 0 && !bytes.Equal(b[:n], content[tc.at:][:n]) {
			t.Errorf("%+v: other bytes", tc)
		}
	}
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadAt(make([]byte, 16), size/2); !errors.Is(err, errUnreadable) {
		t.Errorf("cut: %v", err)
	}
}
