package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// cleared is the sequence that removes a bar.
const cleared = "\x1b[2K\r"

// TestFirstSyncBar: while a first list is read, a terminal shows its progress. Lines of
// the log stay whole, and the bar is removed at the end.
func TestFirstSyncBar(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	const n = 1000
	for i := range n {
		if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web",
			Name: fmt.Sprintf("c%04d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	held := make(chan struct{})
	answer := kubesim.Answer(apierrors.NewTooManyRequestsError("later"))
	sim.FailNext(func(r *http.Request) bool {
		return r.URL.Query().Get("continue") != ""
	}, 1, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
		answer(w, r)
	})
	s := newScreen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, genericiooptions.IOStreams{Out: &buffer{}, ErrOut: s.tty},
			[]string{"mirror", "configmaps", "-A",
				"--no-socket", "--db", filepath.Join(t.TempDir(), "f.db"), "--server", sim.URL()})
	}()
	s.await(t, fmt.Sprintf("/%d)", n))
	close(held)
	s.await(t, "live at resourceVersion")
	cancel()
	if code := <-ended; code != 0 {
		t.Error("exit code", code)
	}
	s.close()
	shown := s.shown.String()
	bar := regexp.MustCompile(`first sync, objects +\d+% \|[^|]*\| +\((\d+)/1000\)`)
	if at := bar.FindStringSubmatch(shown); at == nil || at[1] == "0" {
		t.Errorf("no part of the list is shown: %v\n%q", at, shown)
	}
	last := strings.LastIndex(shown, "first sync, objects")
	if !strings.Contains(shown[last:], cleared) {
		t.Errorf("the bar stays:\n%q", shown)
	}
	for _, line := range strings.Split(shown, "\r\n") {
		if at := strings.Index(line, "configmaps/v1: "); at > 0 && !strings.HasSuffix(line[:at], cleared) {
			t.Errorf("a line of the log follows the bar: %q", line)
		}
	}
}

// TestCompactionBar: a compaction shows on a terminal how many bytes it has copied.
// Without a terminal, or with JSON output, it shows nothing.
func TestCompactionBar(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	var objs []runtime.Object
	for i := range 60 { // more than one commit of the copy
		noise := make([]byte, 500_000)
		_, _ = rand.Read(noise) // never fails
		objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web",
			Name: fmt.Sprint("c", i), ResourceVersion: fmt.Sprint(i + 1)},
			BinaryData: map[string][]byte{"k": noise}})
	}
	fileWith(t, path, objs)
	s := newScreen(t)
	var out buffer
	compact := func(streams genericiooptions.IOStreams, args ...string) {
		t.Helper()
		if code := run(t.Context(), streams, append([]string{"compact", "--db", path}, args...)); code != 0 {
			t.Errorf("exit code %d\n%q", code, s.shown.String())
		}
	}
	compact(genericiooptions.IOStreams{Out: &out, ErrOut: s.tty}, "-o", "json")
	var piped buffer
	compact(genericiooptions.IOStreams{Out: &out, ErrOut: &piped})
	if piped.String() != "" || s.shown.String() != "" {
		t.Errorf("%q %q", piped.String(), s.shown.String())
	}
	compact(genericiooptions.IOStreams{Out: &out, ErrOut: s.tty})
	s.close()
	bar := regexp.MustCompile(regexp.QuoteMeta(path) + ` +\d+% .*/\d+ ?MB`)
	if shown := s.shown.String(); !bar.MatchString(shown) || !strings.HasSuffix(shown, cleared) {
		t.Errorf("%q", shown)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}
