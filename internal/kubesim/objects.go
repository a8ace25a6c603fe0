package kubesim

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// Object is any API object: a Go type of client-go's scheme, or
// *unstructured.Unstructured for a custom resource.
type Object = kubeapi.APIObject

// Create stores obj as a POST would and sets its resourceVersion,
// creationTimestamp and, where empty, uid and generated name. Unlike a POST it
// does not ask for the namespace to exist. Errors are API status errors.
func (s *Server) Create(obj Object) error {
	t, err := s.tableOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.create(t, obj)
	return err
}

// Update replaces the stored object by obj as a PUT would, and sets obj's
// resourceVersion. An empty resourceVersion overwrites any stored version. If nothing
// changes, the stored version stays.
func (s *Server) Update(obj Object) error {
	t, err := s.tableOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.update(t, obj)
	return err
}

// Delete removes the object of obj's type, namespace and name at once.
func (s *Server) Delete(obj Object) error {
	t, err := s.tableOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.remove(t, obj.GetNamespace(), obj.GetName(), nil)
	return err
}

// Get fills obj with the stored object of its type, namespace and name.
func (s *Server) Get(obj Object) error {
	t, err := s.tableOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	v := t.current(t.Key(obj.GetNamespace(), obj.GetName()))
	s.mu.Unlock()
	if v == nil {
		return apierrors.NewNotFound(t.GroupResource(), obj.GetName())
	}
	return t.Decode(v, obj)
}

// List returns copies of all objects of like's type in key order, and the
// revision they are the state of.
func (s *Server) List(like Object) ([]Object, uint64, error) {
	t, err := s.tableOf(like)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	rev := s.rev
	var stored []*kubeapi.Object
	t.scan("", "", rev, func(_ string, o *kubeapi.Object) bool {
		stored = append(stored, o)
		return true
	})
	s.mu.Unlock()
	objs := make([]Object, len(stored))
	for i, v := range stored {
		objs[i] = t.NewObject()
		if err := t.Decode(v, objs[i]); err != nil {
			return nil, 0, err
		}
	}
	return objs, rev, nil
}

// Revision returns the revision of the newest write.
func (s *Server) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rev
}

func (s *Server) tableOf(obj Object) (*table, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if _, ok := obj.(*unstructured.Unstructured); !ok {
		kinds, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, fmt.Errorf("kubesim: %w", err)
		}
		gvk = kinds[0]
	}
	if t := s.tableByKind(gvk); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("kubesim: %s is not served", gvk)
}

// create stores obj. Like update and remove it needs s.mu.
func (s *Server) create(t *table, obj Object) (*kubeapi.Object, error) {
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + rand.String(5))
	}
	if obj.GetName() == "" {
		return nil, apierrors.NewInvalid(t.qualifiedKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name or generateName is required"),
		})
	}
	if obj.GetResourceVersion() != "" {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "resourceVersion should not be set on objects to be created",
		}}
	}
	key := t.Key(obj.GetNamespace(), obj.GetName())
	if t.current(key) != nil {
		return nil, apierrors.NewAlreadyExists(t.GroupResource(), obj.GetName())
	}
	if obj.GetUID() == "" {
		obj.SetUID(uuid.NewUUID())
	}
	if ts := obj.GetCreationTimestamp(); ts.IsZero() {
		obj.SetCreationTimestamp(metav1.NewTime(s.clock.Now()).Rfc3339Copy())
	}
	setDefaults(obj)
	return s.put(t, key, obj)
}

// setDefaults sets the few defaults that selectors depend on.
func setDefaults(obj Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.PodPending
		}
	case *corev1.Namespace:
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.NamespaceActive
		}
		metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
	}
}

// put encodes obj as of the next revision and commits it.
func (s *Server) put(t *table, key string, obj Object) (*kubeapi.Object, error) {
	rv := s.rev + 1
	obj.SetResourceVersion(strconv.FormatUint(rv, 10))
	o, err := t.Encode(obj, rv)
	if err != nil {
		return nil, fmt.Errorf("kubesim: encode %s%s: %w", t.Plural, key, err)
	}
	s.commit(t, key, &version{rv, o})
	return o, nil
}

// update replaces the stored object by obj.
func (s *Server) update(t *table, obj Object) (*kubeapi.Object, error) {
	key := t.Key(obj.GetNamespace(), obj.GetName())
	old := t.current(key)
	if old == nil {
		return nil, apierrors.NewNotFound(t.GroupResource(), obj.GetName())
	}
	oldRV := strconv.FormatUint(old.Version, 10)
	if rv := obj.GetResourceVersion(); rv != "" && rv != oldRV {
		return nil, apierrors.NewConflict(t.GroupResource(), obj.GetName(), errModified)
	}
	m, err := t.Metadata(old)
	if err != nil {
		return nil, err
	}
	if uid := obj.GetUID(); uid != "" && uid != m.UID {
		return nil, apierrors.NewConflict(t.GroupResource(), obj.GetName(), fmt.Errorf(
			"StorageError: invalid object, Code: 4, Key: /registry/%s%s, ResourceVersion: 0, AdditionalErrorMsg: "+
				"Precondition failed: UID in precondition: %s, UID in object meta: %s",
			t.Plural, key, uid, m.UID))
	}
	obj.SetUID(m.UID)
	obj.SetCreationTimestamp(m.CreationTimestamp)
	setDefaults(obj)
	obj.SetResourceVersion(oldRV)
	same, err := t.Encode(obj, old.Version)
	if err != nil {
		return nil, fmt.Errorf("kubesim: encode %s%s: %w", t.Plural, key, err)
	}
	if equal, err := t.equal(same, old); err != nil || equal {
		return old, err
	}
	return s.put(t, key, obj)
}

var errModified = errors.New("the object has been modified; please apply your changes to the latest version " +
	"and try again")

// remove deletes an object and returns its last version.
func (s *Server) remove(t *table, namespace, name string, pre *metav1.Preconditions) (*kubeapi.Object, error) {
	key := t.Key(namespace, name)
	old := t.current(key)
	if old == nil {
		return nil, apierrors.NewNotFound(t.GroupResource(), name)
	}
	if pre != nil {
		m, err := t.Metadata(old)
		if err != nil {
			return nil, err
		}
		kind := schema.GroupResource{Group: t.Group, Resource: t.Kind}
		if pre.UID != nil && *pre.UID != m.UID {
			return nil, apierrors.NewConflict(kind, name, fmt.Errorf(
				"the UID in the precondition (%s) does not match the UID in record (%s). The object might have "+
					"been deleted and then recreated", *pre.UID, m.UID))
		}
		if pre.ResourceVersion != nil && *pre.ResourceVersion != m.ResourceVersion {
			return nil, apierrors.NewConflict(kind, name, fmt.Errorf(
				"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
					"The object might have been modified", *pre.ResourceVersion, m.ResourceVersion))
		}
	}
	s.commit(t, key, &version{rv: s.rev + 1})
	return old, nil
}

// qualifiedKind names the type in validation errors, as the real server does:
// custom resources by their plural.
func (t *table) qualifiedKind() schema.GroupKind {
	if t.Custom {
		return schema.GroupKind{Group: t.Group, Kind: t.Plural}
	}
	return schema.GroupKind{Group: t.Group, Kind: t.Kind}
}

func (t *table) equal(a, b *kubeapi.Object) (bool, error) {
	x, err := t.Raw(a)
	if err != nil {
		return false, err
	}
	y, err := t.Raw(b)
	return bytes.Equal(x, y), err
}
