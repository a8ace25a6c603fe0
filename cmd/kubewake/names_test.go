package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
)

// TestNamesComplete: a completion shows the names that begin with the typed text.
func TestNamesComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	var objs []runtime.Object
	for i := range 600 {
		namespace := []string{"other", "web"}[i%2]
		objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
			Name: fmt.Sprintf("c%04d", i), ResourceVersion: fmt.Sprint(i + 1)},
			Data: map[string]string{"k": "v"}})
	}
	objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "d",
		ResourceVersion: "9999"}})
	fileWith(t, path, objs)
	complete := func(args ...string) []string {
		t.Helper()
		got := strings.Fields(shown(t,
			append(append([]string{"__complete"}, args[:len(args)-1]...), "-n", "web", "--db", path,
				args[len(args)-1])...))
		if last := got[len(got)-1]; last != ":4" {
			t.Errorf("%q: directive %s", args, last)
		}
		return got[:len(got)-1]
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "cm", "c000"}, "c0001 c0003 c0005 c0007 c0009"},
		{[]string{"describe", "cm", "c000"}, "c0001 c0003 c0005 c0007 c0009"},
		{[]string{"get", "cm/c000"}, "cm/c0001 cm/c0003 cm/c0005 cm/c0007 cm/c0009"},
		{[]string{"get", "cm", "c0001", "c000"}, "c0003 c0005 c0007 c0009"},
		{[]string{"get", "cm", "d"}, "d"},
		{[]string{"get", "cm", "x"}, ""},
		{[]string{"get", "c"}, "configmaps"},
		{[]string{"history", "c"}, "configmaps"},
		{[]string{"history", "cm", "c000"}, "c0001 c0003 c0005 c0007 c0009"},
		{[]string{"history", "cm", "c0001", "c000"}, ""},
		{[]string{"index", "c"}, "configmaps"},
		{[]string{"index", "cm", "c"}, ""},
		{[]string{"export", "c"}, "configmaps"},
		{[]string{"export", "cm", "c"}, "configmaps"},
	} {
		if got := strings.Join(complete(tc.args...), " "); got != tc.want {
			t.Errorf("%q: %q, not %q", tc.args, got, tc.want)
		}
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"compare", "--db", path, "c"}, "configmaps :4"},
		{[]string{"get", "cm", "--db", path, "-n", ""}, "other web :4"},
		{[]string{"describe", "--db", path, "--namespace", "o"}, "other :4"},
		{[]string{"history", "--db", path, "-n", "w"}, "web :4"},
		{[]string{"history", "--db", path + ".none", "-n", "w"}, ":4"},
	} {
		if got := shown(t, append([]string{"__complete"}, tc.args...)...); got != tc.want {
			t.Errorf("%q: %q, not %q", tc.args, got, tc.want)
		}
	}
}

// TestCompletionEnds: a file whose owner does not answer completes nothing, after a moment.
// The shell waits for it.
func TestCompletionEnds(t *testing.T) {
	dir, err := os.MkdirTemp("", "kw") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "f.db")
	fileWith(t, path, []runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c",
		ResourceVersion: "1"}}})
	release, err := boltstore.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	l, err := net.Listen("unix", path+".sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began := time.Now()
	got := shown(t, "__complete", "get", "cm", "-n", "web", "--db", path, "")
	if took := time.Since(began); got != ":4" || took > 4*longestCompletion {
		t.Errorf("after %s: %q", took, got)
	}
}
