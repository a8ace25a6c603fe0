package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// mounted returns a folder with its own file system.
func mounted(t *testing.T, kind, data string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	if err := syscall.Mount(kind, dir, kind, 0, data); err != nil {
		t.Skipf("%s cannot be mounted here: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestOverlayIsWarnedOf: a file on an overlay, as in a container without a volume,
// works. A warning names the file system.
func TestOverlayIsWarnedOf(t *testing.T) {
	below := mounted(t, "tmpfs", "")
	var dirs []string
	for _, name := range []string{"lower", "upper", "work"} {
		dir := filepath.Join(below, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	overlay := mounted(t, "overlay", "lowerdir="+dirs[0]+",upperdir="+dirs[1]+",workdir="+dirs[2])
	for dir, want := range map[string]bool{overlay: true, below: false} {
		var mu sync.Mutex
		var said []string
		log := klog.New(funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, args)
		}, funcr.Options{}).GetSink())
		db := openTest(t, filepath.Join(dir, "f.db"), Options{Logger: &log})
		s := claimTest(t, db, Claim{})
		if err := s.Add(configMap("a", "b", 1, nil)); err != nil {
			t.Error(err)
		}
		closeTest(t, db)
		mu.Lock()
		all := strings.Join(said, "\n")
		mu.Unlock()
		if got := strings.Contains(all, "cannot be relied on") && strings.Contains(all, `"overlay"`); got != want {
			t.Errorf("%s: warned %v: %s", dir, got, all)
		}
	}
}

// TestReadOnlyFileSystem: a file on a read-only file system can be read, and not opened
// for writing. Nothing is set aside, and the file is unchanged once it can be written
// again.
func TestReadOnlyFileSystem(t *testing.T) {
	dir := mounted(t, "tmpfs", "")
	remount := func(flags uintptr) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, "")
	}
	path := filepath.Join(dir, "f.db")
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	if err := s.Add(configMap("a", "one", 1, nil)); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	if err := remount(syscall.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Durability: DurabilityProcess}} {
		db, err := Open(path, o)
		if err == nil {
			t.Fatal("opened for writing", db.Close())
		}
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "mount it for writing") {
			t.Error(err)
		}
	}
	if _, err := Open(filepath.Join(dir, "new.db"), Options{}); !errors.Is(err, syscall.EROFS) {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
	db, err := Open(path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	v, err := db.View(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	if objs, err := v.ListErr(); err != nil || len(objs) != 1 {
		t.Error(objs, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := remount(0); err != nil {
		t.Fatal(err)
	}
	db = openTest(t, path, Options{})
	if got := claimTest(t, db, Claim{}).List(); len(got) != 1 || len(db.AsidePaths()) > 0 {
		t.Error(got, db.AsidePaths())
	}
	if _, err := Open(filepath.Join(dir, "none.db"), Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
