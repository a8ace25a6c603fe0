package apifile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewake/kubewake/boltstore"
)

func source1(resource, namespace, labels string) boltstore.Source {
	return boltstore.Source{Version: "v1", Resource: resource, Namespace: namespace, LabelSelector: labels,
		Form: boltstore.FormTyped}
}

func meta(namespace, name string, version int, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(version),
		UID: types.UID(namespace + name)}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		metav1.SetMetaDataLabel(&m, k, v)
	}
	return m
}

func configMap(namespace, name string, version int, labels ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta(namespace, name, version, labels...), Data: map[string]string{"k": name}}
}

// answered is the short form of an answer.
type answered struct {
	code   int
	header http.Header
	body   string
	object unstructured.Unstructured
	names  string
}

// ask sends a request that must be answered without waiting.
func ask(t testing.TB, h http.Handler, method, path string, header ...string) answered {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	a := answered{code: w.Code, header: w.Header(), body: w.Body.String()}
	if json.Unmarshal(w.Body.Bytes(), &a.object.Object) != nil {
		return a // no JSON object
	}
	var names []string
	items, _ := a.object.Object["items"].([]any)
	for _, item := range items {
		u := unstructured.Unstructured{Object: item.(map[string]any)}
		names = append(names, strings.Trim(u.GetNamespace()+"/"+u.GetName(), "/"))
	}
	a.names = strings.Join(names, " ")
	return a
}

// expect asks for a list, or an error.
func expect(t testing.TB, h http.Handler, path string, code int, want string) answered {
	t.Helper()
	a := ask(t, h, http.MethodGet, path)
	if a.code != code || code == http.StatusOK && a.names != want || !strings.Contains(a.body, want) &&
		code != http.StatusOK {
		t.Errorf("%s: %d %q, want %d %q: %.300s", path, a.code, a.names, code, want, a.body)
	}
	return a
}
