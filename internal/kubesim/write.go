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
)

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
	return r.writeObject(http.StatusCreated, v)
}

// createInNamespace is create for objects that need their namespace to exist.
func (s *Server) createInNamespace(t *table, obj Object) (*version, error) {
	if ns := s.tableByKind(corev1.SchemeGroupVersion.WithKind("Namespace")); ns != nil && t.Namespaced {
		if ns.current(ns.key("", obj.GetNamespace())) == nil {
			return nil, apierrors.NewNotFound(ns.groupResource(), obj.GetNamespace())
		}
	}
	return s.create(t, obj)
}

func (r *request) putObject() error {
	obj, err := r.readObject()
	if err != nil {
		return err
	}
	if obj.GetName() != r.name {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), r.name))
	}
	r.s.mu.Lock()
	v, err := r.s.replace(r.t, obj)
	r.s.mu.Unlock()
	if err != nil {
		return err
	}
	return r.writeObject(http.StatusOK, v)
}

// replace is update for a PUT, which for custom resources must name the version
// it replaces.
func (s *Server) replace(t *table, obj Object) (*version, error) {
	exists := t.current(t.key(obj.GetNamespace(), obj.GetName())) != nil
	if t.kind.custom && exists && obj.GetResourceVersion() == "" {
		return nil, apierrors.NewInvalid(t.qualifiedKind(), obj.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	return s.update(t, obj)
}

// patch applies a JSON merge patch, the only kind of patch there is here.
func (r *request) patch() error {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != string(types.MergePatchType) {
		return apiStatus(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type")
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
	v, err := r.s.mergePatch(r.t, r.t.key(r.namespace, r.name), r.name, patch)
	r.s.mu.Unlock()
	if err != nil {
		return err
	}
	return r.writeObject(http.StatusOK, v)
}

func (s *Server) mergePatch(t *table, key, name string, patch map[string]any) (*version, error) {
	old := t.current(key)
	if old == nil {
		return nil, apierrors.NewNotFound(t.groupResource(), name)
	}
	data, err := t.kind.jsonOf(old)
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
	obj := t.kind.newObject()
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj.SetName(old.name)
	obj.SetNamespace(old.namespace)
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
	v, err := r.s.remove(r.t, r.namespace, r.name, opts.Preconditions)
	r.s.mu.Unlock()
	if err != nil {
		return err
	}
	if r.t.Group == "" && (r.t.Kind == "Pod" || r.t.Kind == "Service") {
		return r.writeObject(http.StatusOK, v)
	}
	m, err := r.t.kind.metadata(v)
	if err != nil {
		return err
	}
	body, err := encodeStatus(&metav1.Status{
		Status:  metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: r.name, Group: r.t.Group, Kind: r.t.Plural, UID: m.UID},
	}, r.enc.proto)
	if err != nil {
		return err
	}
	writeBody(r.w, http.StatusOK, body, r.enc.proto)
	return nil
}

func (r *request) deleteCollection() error {
	q, err := r.parseList()
	if err != nil {
		return err
	}
	if _, err := r.readDeleteOptions(); err != nil {
		return err
	}
	r.s.mu.Lock()
	p := page{rv: r.s.rev}
	r.t.scan(q.prefix, "", r.s.rev, func(_ string, v *version) bool {
		if q.matches(v) {
			p.versions = append(p.versions, v)
		}
		return true
	})
	for _, v := range p.versions {
		if _, err := r.s.remove(r.t, v.namespace, v.name, nil); err != nil {
			r.s.mu.Unlock()
			return err
		}
	}
	r.s.mu.Unlock()
	return r.writePage(&p)
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
	if !(media == mediaJSON || media == "" || media == mediaProto && !r.t.kind.custom) {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
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
		obj.SetNamespace(r.namespace)
	case ns != r.namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return obj, nil
}

func (t *table) decodeBody(body []byte) (Object, error) {
	if t.kind.custom {
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
