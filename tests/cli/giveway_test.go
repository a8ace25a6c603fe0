package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// take opens the file as a mirror does, with the default time to wait, and
// writes to it.
func take(t *testing.T, path string, n int) {
	t.Helper()
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	var objs []kruntime.Object
	for i := range 3000 {
		objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web",
			Name: fmt.Sprintf("cm%04d", i), ResourceVersion: fmt.Sprint(n)},
			Data: map[string]string{"text": strings.Repeat(fmt.Sprint(n, " "), 100)}})
	}
	for range 3 { // what it frees with the first one it uses again
		r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{})
		if err == nil {
			err = r.Page(objs)
		}
		if err == nil {
			_, err = r.Commit(fmt.Sprint(n), time.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestReadersGiveWay: a command that reads the file and does not end does not keep a
// mirror from starting.
func TestReadersGiveWay(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the lock is held here")
	}
	path := filepath.Join(t.TempDir(), "f.db")
	take(t, path, 1)

	// A pager that does not read on.
	get := exec.Command(kubewake, "get", "configmaps", "-A", "-o", "yaml", "--db", path)
	var errs bytes.Buffer
	get.Stderr = &errs
	out, err := get.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := get.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	take(t, path, 2)
	all, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	// It prints while it reads, and reports which part it has not read.
	err = get.Wait()
	if err != nil && !strings.Contains(errs.String(), "another program has taken the file over") {
		t.Errorf("get: %v\n%s", err, errs.String())
	}
	if n := bytes.Count(all, []byte("name: cm")); n != 3000 && err == nil || n > 3000 ||
		bytes.Contains(all, []byte("2 2 2")) {
		t.Errorf("get: %v, %d objects, or not as they were", err, n)
	}

	// A check completes for the state that it began on, or says why it could not: writes
	// meanwhile are not damage.
	for i := range 6 {
		check := exec.Command(kubewake, "check", "--db", path)
		var said bytes.Buffer
		check.Stdout, check.Stderr = &said, &said
		if err := check.Start(); err != nil {
			t.Fatal(err)
		}
		take(t, path, 3+i)
		err := check.Wait()
		var exit *exec.ExitError
		switch {
		case err == nil:
			if !strings.Contains(said.String(), "is sound") {
				t.Errorf("check: %s", said.String())
			}
		case errors.As(err, &exit) && exit.ExitCode() == 2:
			if text := said.String(); !strings.Contains(text, "another program has taken the file over") &&
				!strings.Contains(text, "in use by another process") {
				t.Errorf("check: %s", text)
			}
		default:
			t.Errorf("check: %v\n%s", err, said.String())
		}
	}
}
