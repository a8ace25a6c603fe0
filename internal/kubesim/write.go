package kubesim

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

const (
	mediaJSON  = kubeapi.MediaJSON
	mediaProto = kubeapi.MediaProto
)

// request is a call that writes.
type request struct {
	*kubeapi.Request
	s *Server
	t *table
}

// write answers the verbs that change objects.
func (s *Server) write(req *kubeapi.Request, verb string) error {
	r := &request{req, s, s.tableOfType(req.Type)}
	switch verb {
	case "create":
		return r.post()
	case "update":
		return r.putObject()
	case "patch":
		return r.patch()
	case "delete":
		return r.delete()
	default:
		return r.deleteCollection()
	}
}

func (r *request) post() error {
	obj, err := r.readObject()
	if err != nil {
		return err
	}
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	r.s.mu.Lock()
	v, err := r.s.createInNamespace(r.t, obj)
	r.s.mu.Unlock()
	if err != nil {
		return err
	}
	return r.WriteObject(http.StatusCreated, v)
}

// createInNamespace is create for objects that need their namespace to exist.
func (s *Server) createInNamespace(t *table, obj Object) (*kubeapi.Object, error) {
	if ns := s.tableByKind(corev1.SchemeGroupVersion.WithKind("Namespace")); ns != nil && t.Namespaced {
		if ns.current(ns.Key("", obj.GetNamespace())) == nil {
			return nil, apierrors.NewNotFound(ns.GroupResource(), obj.GetNamespace())
		}
	}
	return s.create(t, obj)
}

func (r *request) putObject() error {
	obj, err := r.readObject()
	if err != nil {
		return err
	}
	if obj.GetName() != r.Name {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), r.Name))
	}
	r.s.mu.Lock()
	v, err := r.s.replace(r.t, obj)
	r.s.mu.Unlock()
	if err != nil {
		return err
	}
	return r.WriteObject(http.StatusOK, v)
}

// replace is update for a PUT, which for custom resources must name the version
// it replaces.
func (s *Server) replace(t *table, obj Object) (*kubeapi.Object, error) {
	exists := t.current(t.Key(obj.GetNamespace(), obj.GetName())) != nil
	if t.Custom && exists && obj.GetResourceVersion() == "" {
		return nil, apierrors.NewInvalid(t.qualifiedKind(), obj.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	return s.update(t, obj)
}

// patch applies a JSON merge patch, the only kind of patch there is here.
func (r *request) patch() error {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != string(types.MergePatchType) {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
			Reason:  metav1.StatusReasonUnsupportedMediaType,
			Message: "415: Unsupported Media Type", Details: &metav1.StatusDetails{},
		}}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var patch map[string]any
	if err := json.Unmarshal(body, &patch); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	r.s.mu.Lock()
	v, err := r.s.mergePatch(r.t, r.t.Key(r.Namespace, r.Name), r.Name, patch)
	r.s.mu.Unlock()
	if err != nil {
		return err
	}
	return r.WriteObject(http.StatusOK, v)
}

func (s *Server) mergePatch(t *table, key, name string, patch map[string]any) (*kubeapi.Object, error) {
	old := t.current(key)
	if old == nil {
		return nil, apierrors.NewNotFound(t.GroupResource(), name)
	}
	data, err := t.JSON(old)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	merge(doc, patch)
	if data, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	obj := t.NewObject()
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj.SetName(old.Name)
	obj.SetNamespace(old.Namespace)
	return s.update(t, obj)
}

// merge applies patch to doc by the rules of RFC 7386.
func merge(doc, patch map[string]any) {
	for k, v := range patch {
		sub, isObject := v.(map[string]any)
		switch {
		case v == nil:
			delete(doc, k)
		case isObject:
			old, ok := doc[k].(map[string]any)
			if !ok {
				old = map[string]any{}
			}
			merge(old, sub)
			doc[k] = old
		default:
			doc[k] = v
		}
	}
}

func (r *request) delete() error {
	opts, err := r.readDeleteOptions()
	if err != nil {
		return err
	}
	r.s.mu.Lock()
	v, err := r.s.remove(r.t, r.Namespace, r.Name, opts.Preconditions)
	r.s.mu.Unlock()
	if err != nil {
		return err
	}
	if r.t.Group == "" && (r.t.Kind == "Pod" || r.t.Kind == "Service") {
		return r.WriteObject(http.StatusOK, v)
	}
	m, err := r.t.Metadata(v)
	if err != nil {
		return err
	}
	return r.WriteSuccess(&metav1.StatusDetails{Name: r.Name, Group: r.t.Group, Kind: r.t.Plural, UID: m.UID})
}

func (r *request) deleteCollection() error {
	p, err := r.Parameters()
	if err != nil {
		return err
	}
	if _, err := r.readDeleteOptions(); err != nil {
		return err
	}
	q := kubeapi.Query{Selection: p.Selection}
	r.s.mu.Lock()
	q.At = r.s.rev
	page := r.t.collect(q)
	for _, o := range page.Objects {
		if _, err := r.s.remove(r.t, o.Namespace, o.Name, nil); err != nil {
			r.s.mu.Unlock()
			return err
		}
	}
	r.s.mu.Unlock()
	return r.WriteList(page, q)
}

func (r *request) readDeleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		return opts, err
	}
	gvk := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &gvk, opts)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if got, ok := obj.(*metav1.DeleteOptions); ok {
		opts = got
	}
	return opts, nil
}

// readObject decodes the body as an object of the request's kind and namespace.
func (r *request) readObject() (Object, error) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if !(media == mediaJSON || media == "" || media == mediaProto && !r.t.Custom) {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
			Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: "the body of the request was in an unknown format - accepted media types include: " +
				"application/json, application/yaml, application/vnd.kubernetes.protobuf",
		}}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	obj, err := r.t.decodeBody(body)
	if err != nil {
		return nil, err
	}
	switch ns := obj.GetNamespace(); {
	case ns == "":
		obj.SetNamespace(r.Namespace)
	case ns != r.Namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace " +
			"sent on the request")
	}
	return obj, nil
}

func (t *table) decodeBody(body []byte) (Object, error) {
	if t.Custom {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(body); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if v, want := u.GetAPIVersion(), t.GroupVersion().String(); v != want {
			return nil, apierrors.NewBadRequest(fmt.Sprintf(
				"the API version in the data (%s) does not match the expected API version (%s)", v, want))
		}
		if gvk := u.GroupVersionKind(); gvk != t.GroupVersionKind {
			return nil, apierrors.NewBadRequest(fmt.Sprintf(
				"%s in version %q cannot be handled as a %s", gvk.Kind, gvk.Version, t.Kind))
		}
		return u, nil
	}
	obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, &t.GroupVersionKind, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"the object provided is unrecognized (must be of type %s): %v", t.Kind, err))
	}
	if *gvk != t.GroupVersionKind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"%s in version %q cannot be handled as a %s", gvk.Kind, gvk.Version, t.Kind))
	}
	return obj.(Object), nil
}
