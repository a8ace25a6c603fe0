package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/internal/waittest"
)

// TestLockThatHangs: where the request for the file's lock hangs, the log says what is
// waited for, and SIGTERM, which ends the context, ends the mirror all the same.
func TestLockThatHangs(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	log := &buffer{}
	streams.ErrOut = log
	path := filepath.Join(t.TempDir(), "cache.db")
	cmd, m := mirrorCommand(streams)
	if err := cmd.ParseFlags([]string{"--db", path}); err != nil {
		t.Fatal(err)
	}
	goOn := make(chan struct{})
	o := m.options()
	tuning.SetFile(&o, tuning.File{Op: func(op, _ string) error {
		if op == "lock" {
			<-goOn
		}
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := m.open(ctx, o)
		ended <- err
	}()
	waittest.Eventually(t, "the log says what is waited for", func() bool {
		return strings.Contains(log.String(), `"operation"="lock"`) && strings.Contains(log.String(), path)
	})
	cancel()
	waittest.Eventually(t, "the mirror has ended", func() bool { return len(ended) > 0 })
	if err := <-ended; err == nil || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
	close(goOn)
	waittest.Eventually(t, "a file that is opened after all is closed", func() bool {
		db, err := boltstore.Open(path, m.db.options())
		return err == nil && db.Close() == nil
	})
}
