package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/internal/serve"
)

// TestServesNobody: if the socket is the only way in, and cannot be made, serve ends.
func TestServesNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("f", 150)) // too long for a socket's path
	fileWith(t, path, []runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c",
		ResourceVersion: "1"}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var errOut bytes.Buffer
	code := run(ctx, genericiooptions.IOStreams{Out: &errOut, ErrOut: &errOut},
		[]string{"serve", "--listen", "none", "--db", path})
	if code != 1 || !strings.Contains(errOut.String(), ".api.sock cannot be made") {
		t.Errorf("%d %s", code, errOut.String())
	}
}

// TestFolderOthersCanWrite: in a folder in which others could replace them, there is neither
// a socket nor a kubeconfig, as there is no file. In /tmp nobody can.
func TestFolderOthersCanWrite(t *testing.T) {
	for _, tc := range []struct {
		mode   os.FileMode
		unsafe bool
		want   string
	}{
		{0o777, false, "can write the folder"}, {0o770, false, "can write the folder"}, {0o777, true, ""},
		{0o777 | os.ModeSticky, false, ""}, {0o755, false, ""}, {0o700, false, ""},
	} {
		dir, err := os.MkdirTemp("", "kw") // a socket's path is short
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		open := filepath.Join(dir, "d")
		if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, tc.mode)); err != nil {
			t.Fatal(err)
		}
		sock := access{socket: filepath.Join(open, "s"), listen: nobody, kubeconfig: beside}
		kubeconfig := access{socket: nobody, listen: "127.0.0.1:0", kubeconfig: filepath.Join(open, "k")}
		for name, a := range map[string]*access{"the socket": &sock, "the kubeconfig": &kubeconfig} {
			a.unsafe = tc.unsafe
			end, err := a.serve(nil, nil, filepath.Join(dir, "f.db"), t.Logf)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s in a folder of mode %o: %v", name, tc.mode, err)
			}
			if err != nil {
				continue
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPortStays: an address without a port goes on with the earlier one, however it is
// written.
func TestPortStays(t *testing.T) {
	for _, tc := range []struct {
		listen, earlier string
		want            bool
	}{
		{"127.0.0.1:0", "127.0.0.1:4711", true},
		{"localhost:0", "127.0.0.1:4711", true},
		{"127.0.0.1:", "127.0.0.1:4711", true},
		{"[::1]:0", "[::1]:4711", true},
		{"[::1]:0", "127.0.0.1:4711", false},
		{"127.0.0.2:0", "127.0.0.1:4711", false},
		{"127.0.0.1:4712", "127.0.0.1:4711", false},
		{"127.0.0.1:0", "", false},
		{"127.0.0.1", "127.0.0.1:4711", false},
	} {
		if got := portStays(tc.listen, tc.earlier); got != tc.want {
			t.Errorf("%s after %s: %v", tc.listen, tc.earlier, got)
		}
	}
}

// TestKubeconfigOnFullDisk: if the kubeconfig cannot be written again, and that of an earlier
// life still leads here, serve goes on with it.
func TestKubeconfigOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	life := func(kubeconfig string) (log string, err error) {
		a := &access{socket: nobody, listen: "127.0.0.1:0", kubeconfig: kubeconfig}
		end, err := a.serve(nil, nil, filepath.Join(dir, "f.db"), func(format string, args ...any) {
			log += fmt.Sprintf(format+"\n", args...)
		})
		if err != nil {
			return log, err
		}
		if !serve.Answers(kubeconfig) {
			t.Errorf("nobody answers at the address of %s", kubeconfig)
		}
		return log, end()
	}
	// no temporary file beside it has so long a name
	short, long := filepath.Join(dir, "kc"), filepath.Join(dir, strings.Repeat("k", 250))
	if _, err := life(long); err == nil || !strings.Contains(err.Error(), "--write-kubeconfig") {
		t.Errorf("the first life: %v", err)
	}
	if _, err := life(short); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(short, long); err != nil {
		t.Fatal(err)
	}
	if log, err := life(long); err != nil || !strings.Contains(log, "the kubeconfig stays as it is, and leads here: ") {
		t.Errorf("%v, %s", err, log)
	}
}
