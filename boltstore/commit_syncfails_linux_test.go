package boltstore

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/kubewake/kubewake/internal/waittest"
)

// TestSyncFails: where the disk refuses a sync, which bbolt returns as the system's error
// alone, the log and Err name the file and the operation. So does Close.
func TestSyncFails(t *testing.T) {
	disk := newBadSectors(t)
	path := filepath.Join(disk.dir, "test.db")
	lines := make(chan string, 1000)
	log := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
	db, err := Open(path, Options{Window: time.Nanosecond, Logger: &log})
	must(t, err)
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("a", "one", 1, nil)) // the file grows, and has room for the next change
	p.wait(t)
	disk.bad(t, path, aSync)
	p.add(t, s, configMap("a", "one", 2, nil))
	waittest.Eventually(t, "Err says so", func() bool { return db.Err() != nil })
	says := func(what, text string) {
		t.Helper()
		if want := "sync " + path + ": " + syscall.EIO.Error(); !strings.Contains(text, want) {
			t.Errorf("%s: %s, without %s", what, text, want)
		}
	}
	says("Err", db.Err().Error())
	if at := (*fs.PathError)(nil); !errors.Is(db.Err(), syscall.EIO) || !errors.As(db.Err(), &at) {
		t.Errorf("%#v", db.Err())
	}
	for line := range lines {
		if strings.Contains(line, "Commit failed") {
			says("the log", line)
			break
		}
	}
	err = db.Close()
	if err == nil {
		t.Fatal("Close says nothing")
	}
	says("Close", err.Error())
}
