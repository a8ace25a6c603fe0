package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// mask is in the place of a value that is not shown.
const mask = "***"

// maskApplied masks the copy of a Secret's data in the annotation of kubectl apply.
// kubectl diff masks the data itself, but would show that copy. The names of the values
// stay, since diff needs them to see which ones a manifest deletes.
func maskApplied(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := kubeapi.ParsePath(r.URL.Path); p.GroupVersion.Group != "" || p.Resource != "secrets" {
			next.ServeHTTP(w, r)
			return
		}
		resp, err := (&inProcess{r.Context(), next}).RoundTrip(r)
		if err != nil {
			kubeapi.WriteStatus(w, apierrors.NewInternalError(err))
			return
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err == nil {
			body, err = withoutApplied(body)
		}
		if err != nil {
			kubeapi.WriteStatus(w, apierrors.NewInternalError(err))
			return
		}
		for name, values := range resp.Header {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(body) // the client left
	})
}

// withoutApplied masks the annotations of a Secret, or of each in a list, in JSON.
func withoutApplied(body []byte) ([]byte, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &u.Object); err != nil {
		return nil, err
	}
	hide := func(u *unstructured.Unstructured) {
		all := u.GetAnnotations()
		if text := all[corev1.LastAppliedConfigAnnotation]; text != "" {
			all[corev1.LastAppliedConfigAnnotation] = masked(text)
			u.SetAnnotations(all)
		}
	}
	hide(u)
	items, _ := u.Object["items"].([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			hide(&unstructured.Unstructured{Object: object})
		}
	}
	return json.Marshal(u.Object)
}

// masked is a manifest of a Secret without its values.
func masked(manifest string) string {
	var object map[string]any
	if json.Unmarshal([]byte(manifest), &object) != nil {
		return "{}" // it cannot be read, and may have anything
	}
	for _, field := range []string{"data", "stringData"} {
		if values, ok := object[field].(map[string]any); ok {
			for name := range values {
				values[name] = mask
			}
		} else {
			delete(object, field)
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return "{}"
	}
	if strings.HasSuffix(manifest, "\n") {
		text = append(text, '\n')
	}
	return string(text)
}
