package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
)

// TestStatusOfMemory: status says which sources a running program reads from memory.
func TestStatusOfMemory(t *testing.T) {
	dir, err := os.MkdirTemp("", "status-") // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "f.db")
	db, err := boltstore.Open(path, boltstore.Options{ObjectMemory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if err := s.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u",
		ResourceVersion: "1"}}); err != nil {
		t.Fatal(err)
	}
	// between two looks: loading gives no signal
	for end := time.Now().Add(time.Minute); !s.State().InMemory; time.Sleep(time.Millisecond) { // between two looks
		if time.Now().After(end) {
			t.Fatal("it is not in memory")
		}
	}
	owner, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	var out, errOut bytes.Buffer
	cmd := newStatus(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
	cmd.SetArgs([]string{"--db", path})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errOut.String(), "configmaps/v1 is read from memory, about ") {
		t.Errorf("status says %s%s", out.String(), errOut.String())
	}
}
