//go:build linux

package informer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDiskFull fills a real file system in the middle of the stream, and frees
// it later: reads work all along, the health says so, and in the end nothing
// is lost, neither for the cache nor for handlers, in this life or the next.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("needs root, to mount a file system of its own: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t)
	w.path = filepath.Join(dir, "wake.db")
	for i := range 20 {
		w.create(fmt.Sprint("before", i), "one")
	}
	rec := newRecorder(t)
	l := w.live(Options{}, rec).run().synced().equal()

	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	big := strings.Repeat("0123456789", 400)
	for i := range 150 {
		w.create(fmt.Sprint("during", i), fmt.Sprint(i, big))
		if i%10 == 0 {
			w.delete(fmt.Sprint("before", i/10))
		}
	}
	eventually(t, "the file's health says that the disk is full", func() bool {
		return errors.Is(l.db.Err(), syscall.ENOSPC)
	})
	n := len(l.inf.GetStore().List())
	if _, err := l.inf.GetIndexer().ByIndex("namespace", "default"); err != nil || n < 5 || n >= 155 {
		t.Fatalf("while the disk is full: %d objects, %v", n, err)
	}
	if v := l.inf.LastSyncResourceVersion(); v == "" {
		t.Fatal("no version")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l.equal()
	eventually(t, "healthy", func() bool { return l.db.Err() == nil })
	eventually(t, "told of everything", func() bool { return len(rec.names()) == 155 })

	fill(t, filler) // and with a file that cannot be written when it is closed
	for i := range 30 {
		w.update(fmt.Sprint("during", i), "again"+strings.Repeat(big, 10))
	}
	eventually(t, "full again", func() bool { return l.db.Err() != nil })
	l.cancel()
	<-l.done
	if err := l.db.Close(); err == nil {
		t.Error("closing said nothing of changes that could not be written")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	again := w.live(Options{}, rec).run().synced().equal()
	if again.db.AsidePaths() != nil {
		t.Fatal("set aside ", again.db.AsidePaths())
	}
	eventually(t, "told of everything", func() bool {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		return len(rec.there) == 155 && strings.HasPrefix(rec.there["during29"].Data["data"], "again")
	})
}

// fill writes until nothing more fits.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 64<<10); len(b) > 0; {
		if _, err := f.Write(b); err != nil {
			b = b[:len(b)/2]
		}
	}
}
