package factory_test

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/factory"
)

// TestWakeFileOfAWokenType: a type that has woken from another file does not wake again.
// The file that nothing wakes from is closed.
func TestWakeFileOfAWokenType(t *testing.T) {
	f := informers.NewSharedInformerFactory(client(simulator(t)), 0)
	if err := factory.WakeFile(f, factory.File{Path: filepath.Join(t.TempDir(), "first.db")},
		&corev1.Pod{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "second.db")
	if err := factory.WakeFile(f, factory.File{Path: path}, &corev1.Pod{}); err == nil {
		t.Fatal("it wakes twice")
	}
	db, err := boltstore.Open(path, boltstore.Options{LockTimeout: -1})
	if err != nil {
		t.Fatalf("no type wakes from the second file, and it is open: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
