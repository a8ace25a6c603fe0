package main

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
)

// TestGetOfSecrets: get shows no data of Secrets in any form, nor in a watch, unless it is
// asked to.
func TestGetOfSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "secrets",
		Form: boltstore.FormTyped}, Example: &corev1.Secret{}})
	if err != nil {
		t.Fatal(err)
	}
	listed(t, s, []runtime.Object{&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", ResourceVersion: "1",
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"pw":"aHVudGVyMg=="}}`}},
		Data: map[string][]byte{"pw": []byte("hunter2")}}})
	if err := s.Describe(boltstore.Description{Scope: boltstore.ScopeNamespaced}); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"get secrets s -o yaml": "pw: REDACTED", "get secrets -o json": `"pw": "REDACTED"`,
		"get secrets": "s 1 <unknown>", "get secrets -o jsonpath={.items[0].data}": `{"pw":"REDACTED"}`,
		"get secrets -o custom-columns=A:.metadata.annotations": "REDACTED",
		"get secrets --raw /api/v1/secrets":                     `"pw":"REDACTED"`,
	} {
		args := append(strings.Fields(line), "-n", "a", "--db", path)
		if strings.Contains(line, "--raw") {
			args = []string{"get", "--raw", "/api/v1/secrets", "--db", path}
		}
		if got := shown(t, args...); !strings.Contains(got, want) || strings.Contains(got, "aHVudGVy") {
			t.Errorf("%s: %s", line, got)
		}
	}
	got := shown(t, "get", "secrets", "-n", "a", "-o", "yaml", "--show-secrets", "--db", path)
	if !strings.Contains(got, "pw: aHVudGVyMg==") {
		t.Error(got)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watched := &firstWrite{cancel: cancel}
	run(ctx, genericiooptions.IOStreams{Out: watched, ErrOut: watched}, []string{"get", "secrets", "-w", "-n", "a",
		"-o", "yaml", "--db", path})
	if text := watched.String(); !strings.Contains(text, "pw: REDACTED") || strings.Contains(text, "aHVudGVy") {
		t.Error(text)
	}
}

// TestHideSecretsFails: an answer whose secrets cannot be found breaks off, and is not shown.
func TestHideSecretsFails(t *testing.T) {
	h := hideSecrets(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("k8s\x00hunter2"))
	}), redact)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://file/api/v1/secrets", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&inProcess{t.Context(), h}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	if err := resp.Write(&got); err == nil || strings.Contains(got.String(), "hunter") {
		t.Errorf("%v: %s", err, got.String())
	}
}

// firstWrite is a terminal that ends a command when it has shown objects.
type firstWrite struct {
	buffer
	cancel func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "kind:") {
		defer w.cancel()
	}
	return w.buffer.Write(b)
}
