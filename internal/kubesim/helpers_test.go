package kubesim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/internal/kubeapi"
	"github.com/kubewake/kubewake/internal/waittest"
)

const (
	messageInconsistent = kubeapi.MessageInconsistent
	messageExpired      = kubeapi.MessageExpired
)

var widgetGVR = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	s := New(opts)
	t.Cleanup(s.Close)
	if _, err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// encodings are the two ways a typed client may talk to the server.
var encodings = map[string]string{"json": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"}

func clientset(t *testing.T, s *Server, contentType string) kubernetes.Interface {
	t.Helper()
	cfg := s.RESTConfig()
	cfg.ContentType = contentType
	if contentType != "" {
		cfg.AcceptContentTypes = contentType + ",application/json"
	}
	return must(kubernetes.NewForConfig(cfg))(t)
}

// must returns a function that fails the test for err and otherwise returns v.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func configMap(name string, labels ...string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"k": name}}
	for i := 0; i+1 < len(labels); i += 2 {
		metav1.SetMetaDataLabel(&cm.ObjectMeta, labels[i], labels[i+1])
	}
	return cm
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"size": int64(3)},
	}}
}

// seed creates n configmaps c0, c1, ... and returns them.
func seed(t testing.TB, s *Server, n int) []*corev1.ConfigMap {
	t.Helper()
	out := make([]*corev1.ConfigMap, n)
	for i := range out {
		out[i] = configMap(fmt.Sprintf("c%03d", i))
		check(t, s.Create(out[i]))
	}
	return out
}

// get sends a GET and returns status and body.
func get(t testing.TB, s *Server, path string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil))(t)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := must((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req))(t)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	return resp, body
}

// lines is an open JSON watch.
type lines struct {
	t    testing.TB
	body io.ReadCloser
	r    *bufio.Reader
}

func watchLines(t testing.TB, s *Server, path string) *lines {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil))(t)
	resp := must((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req))(t)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("watch %s: %s: %s", path, resp.Status, body)
	}
	return &lines{t, resp.Body, bufio.NewReader(resp.Body)}
}

// next returns the next event as "TYPE name rv", with "end" appended to the
// bookmark after the initial events, "EOF" at the orderly end of the watch and
// "broken" if the connection is cut. It fails the test after ten seconds.
func (l *lines) next() string {
	l.t.Helper()
	timer := time.AfterFunc(time.Minute, func() { l.body.Close() })
	line, err := l.r.ReadBytes('\n')
	if !timer.Stop() {
		l.t.Fatal("no event within ten seconds")
	}
	switch {
	case err == io.EOF && len(line) == 0:
		return "EOF"
	case err != nil:
		return "broken"
	}
	var ev struct {
		Type   string
		Object struct {
			Metadata metav1.ObjectMeta
			Code     int
			Reason   string
			Message  string
		}
	}
	check(l.t, json.Unmarshal(line, &ev))
	if ev.Type == string(watch.Error) {
		return fmt.Sprintf("ERROR %d %s: %s", ev.Object.Code, ev.Object.Reason, ev.Object.Message)
	}
	m := ev.Object.Metadata
	out := strings.Join(strings.Fields(ev.Type+" "+m.Name+" "+m.ResourceVersion), " ")
	if m.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		out += " end"
	}
	return out
}

func (l *lines) want(events ...string) {
	l.t.Helper()
	for _, want := range events {
		if got := l.next(); got != want {
			l.t.Fatalf("got event %q, want %q", got, want)
		}
	}
}

var eventually = waittest.Eventually

// statusOf returns an API error's status, or fails the test.
func statusOf(t testing.TB, err error) metav1.Status {
	t.Helper()
	s, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("got %v, want an API status", err)
	}
	return s.Status()
}

func restClient(t testing.TB, cfg *rest.Config) rest.Interface {
	t.Helper()
	return must(kubernetes.NewForConfig(cfg))(t).CoreV1().RESTClient()
}
