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

// hideSecrets applies hide to each Secret in an answer, which must be JSON.
func hideSecrets(next http.Handler, hide func(*unstructured.Unstructured)) http.Handler {
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
		defer resp.Body.Close()
		for name, values := range resp.Header {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(resp.StatusCode)
		out := http.NewResponseController(w)
		for dec := json.NewDecoder(resp.Body); ; { // one value, or the events of a watch
			var text json.RawMessage
			var object map[string]any
			err := dec.Decode(&text)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				err = utiljson.Unmarshal(text, &object) // numbers stay what they are
			}
			if err == nil {
				hideIn(object, hide)
				err = errors.Join(json.NewEncoder(w).Encode(object), out.Flush())
			}
			if err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	})
}

// hideIn applies hide to an object, and to those in a list, a table or an event.
func hideIn(v any, hide func(*unstructured.Unstructured)) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			hideIn(item, hide)
		}
	case map[string]any:
		hide(&unstructured.Unstructured{Object: v})
		for _, field := range []string{"items", "rows", "object"} {
			hideIn(v[field], hide)
		}
	}
}

// maskApplied masks the copy of a Secret's data in the annotation of kubectl apply. kubectl
// diff masks the data itself, but would show that copy. The names of the values stay, since
// diff needs them to see which ones a manifest deletes.
func maskApplied(u *unstructured.Unstructured) {
	all := u.GetAnnotations()
	if text := all[corev1.LastAppliedConfigAnnotation]; text != "" {
		all[corev1.LastAppliedConfigAnnotation] = masked(text)
		u.SetAnnotations(all)
	}
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
