package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestLockedFolder: somebody holds the lock of the file's folder, and a mirror that was killed
// has left its socket there. Neither the first read nor the new socket waits for the lock.
func TestLockedFolder(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	if err := sim.Create(custom("Widget", "a")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "f.db")
	args := []string{"widgets", "-A", "--db", path, "--server", sim.URL(), "--no-socket=false"}
	m := mirrorEvents(t, args...)
	m.await("ADDED a")
	m.end()

	sock, err := live.SocketPath(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	release, err := boltstore.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	began := time.Now()
	m = mirrorEvents(t, args...)
	m.await("ADDED a")
	read := time.Since(began)
	eventually(t, func() error {
		c, err := live.Dial(path)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if took := time.Since(began); took > 8*time.Second { // the wait for a lock is ten seconds
		t.Errorf("the first read took %s, the socket %s", read, took)
	}
	m.end()
}

// TestManyTypes: a mirror of many types asks the server once which types it has.
func TestManyTypes(t *testing.T) {
	const n = 50
	resources := kubesim.DefaultResources()
	var args []string
	for i := range n {
		name := fmt.Sprintf("kind%02d", i)
		resources = append(resources, kubesim.Resource{Plural: name + "s", Namespaced: true,
			GroupVersionKind: schema.GroupVersionKind{Group: "many.example.org", Version: "v1",
				Kind: strings.ToUpper(name[:1]) + name[1:]}})
		args = append(args, name+"s")
	}
	sim := kubesim.New(kubesim.Options{Resources: resources})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for i := range n {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(resources[len(resources)-n+i].GroupVersionKind)
		u.SetNamespace("default")
		u.SetName(fmt.Sprintf("o%02d", i))
		if err := sim.Create(u); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", "/proc/none") // without kubectl's cache, as in a container that is read-only
	m := mirrorEvents(t, append(args, "-A", "--db", filepath.Join(t.TempDir(), "f.db"), "--server", sim.URL())...)
	eventually(t, func() error {
		if got := strings.Count(m.log.String(), ": live"); got < n {
			return errors.New(m.log.String())
		}
		return nil
	})
	asked := map[string]int{}
	for _, r := range sim.Requests() {
		if path, _, _ := strings.Cut(r.Path, "?"); strings.Count(path, "/") <= 3 {
			asked[path]++
		}
	}
	for path, times := range asked {
		if times > 1 {
			t.Errorf("%s was asked for %d times", path, times)
		}
	}
	m.end()
}
