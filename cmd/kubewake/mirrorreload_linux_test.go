package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestEndsDuringReload: a config file that cannot be read to its end, as on a network file
// system that hangs, holds up no end of the mirror.
func TestEndsDuringReload(t *testing.T) {
	c := newConfigured(t, "all-namespaces: true\ntypes: [configmaps]")
	c.keeps([]string{"configmaps/v1"}, "configmap/b configmap/a")
	if err := os.Remove(c.config); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(c.config, 0o600); err != nil {
		t.Fatal(err)
	}
	c.hangup("")
	ended := make(chan struct{})
	go func() { c.end(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it has not ended")
	}
	w, err := os.OpenFile(c.config, os.O_RDWR, 0) // the file is read to its end now
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}
