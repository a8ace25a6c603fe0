package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// dryRun answers the requests of kubectl diff: an object of the file after a patch, or a
// new object. Nothing is written. It leaves out defaults, admission and field managers,
// which are the server's.
func dryRun(file http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dry := r.URL.Query().Get("dryRun") == metav1.DryRunAll
		switch {
		case r.Method == http.MethodPost && dry:
			body, err := io.ReadAll(r.Body)
			if err == nil {
				body, err = asServer(body)
			}
			if err != nil {
				kubeapi.WriteStatus(w, apierrors.NewBadRequest(err.Error()))
				return
			}
			kubeapi.WriteJSON(w, http.StatusCreated, body)
		case r.Method == http.MethodPatch && dry:
			patched(w, r, file)
		default:
			file.ServeHTTP(w, r)
		}
	})
}

func patched(w http.ResponseWriter, r *http.Request, file http.Handler) {
	get := r.Clone(r.Context())
	get.Method, get.Body, get.URL.RawQuery = http.MethodGet, http.NoBody, ""
	get.Header = http.Header{"Accept": {kubeapi.MediaJSON}}
	resp, err := (&inProcess{r.Context(), file}).RoundTrip(get)
	if err != nil {
		kubeapi.WriteStatus(w, apierrors.NewInternalError(err))
		return
	}
	defer resp.Body.Close()
	object, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		kubeapi.WriteJSON(w, resp.StatusCode, object)
		return
	}
	patch, perr := io.ReadAll(r.Body)
	if err = errors.Join(err, perr); err == nil {
		object, err = apply(object, patch, apitypes.PatchType(r.Header.Get("Content-Type")))
	}
	if err == nil {
		object, err = asServer(object)
	}
	if err != nil {
		kubeapi.WriteStatus(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	kubeapi.WriteJSON(w, http.StatusOK, object)
}

// apply applies a patch to an object, both in JSON.
func apply(object, patch []byte, how apitypes.PatchType) ([]byte, error) {
	switch how {
	case apitypes.MergePatchType:
		return jsonpatch.MergePatch(object, patch)
	case apitypes.StrategicMergePatchType:
		var kind metav1.TypeMeta
		if err := json.Unmarshal(object, &kind); err != nil {
			return nil, err
		}
		typ, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
		if err != nil {
			return nil, err
		}
		return strategicpatch.StrategicMergePatch(object, patch, typ)
	case apitypes.ApplyYAMLPatchType, apitypes.ApplyCBORPatchType:
		return nil, errors.New("a file has no field managers for --server-side; ask a server: kubectl diff")
	}
	return nil, fmt.Errorf("a file applies no patch of type %q", how)
}

// asServer changes an object in the same way as every server: empty annotations are
// removed, and a Secret's stringData moves into its data, where kubectl masks it.
func asServer(object []byte) ([]byte, error) {
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(object, &u.Object); err != nil { // numbers stay what they are
		return nil, err
	}
	if len(u.GetAnnotations()) == 0 {
		u.SetAnnotations(nil)
	}
	if texts, ok := u.Object["stringData"].(map[string]any); ok &&
		u.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Secret") {
		data, ok := u.Object["data"].(map[string]any)
		if !ok {
			data = map[string]any{}
		}
		for name, value := range texts {
			text, ok := value.(string)
			if !ok {
				return nil, fmt.Errorf("stringData of Secret %q has %q, which is no text", u.GetName(), name)
			}
			data[name] = base64.StdEncoding.EncodeToString([]byte(text))
		}
		u.Object["data"] = data
		delete(u.Object, "stringData")
	}
	return json.Marshal(u.Object)
}
