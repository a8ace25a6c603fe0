package kubeapi

import (
	"cmp"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// Selectable says whether a field selector can name a field of the type's objects.
func (t *Type) Selectable(field string) bool {
	if t.MetadataOnly {
		return selectable(&metav1.PartialObjectMetadata{}).Has(field)
	}
	return selectable(t.NewObject()).Has(field) && (field != "metadata.namespace" || t.Namespaced || t.builtIn)
}

// noFieldsOfItsOwn says whether objects can be selected by name and namespace only, as
// with most built-in types.
func (t *Type) noFieldsOfItsOwn() bool {
	set := selectable(t.NewObject())
	return t.builtIn && len(set) == 2 && set.Has("metadata.namespace")
}

// selectable returns the fields of obj that a field selector can name. For a built-in
// type without fields of its own they include the namespace, even if the type is
// cluster-scoped.
func selectable(obj APIObject) fields.Set {
	set := fields.Set{"metadata.name": obj.GetName()}
	switch o := typed(obj).(type) {
	case *corev1.Namespace:
		set["status.phase"] = string(o.Status.Phase)
		return set
	case *corev1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
		return set
	case *certificatesv1.CertificateSigningRequest:
		set["spec.signerName"] = o.Spec.SignerName
		return set
	case *certificatesv1beta1.CertificateSigningRequest:
		set["spec.signerName"] = ptr.Deref(o.Spec.SignerName, "")
		return set
	case *certificatesv1alpha1.ClusterTrustBundle:
		set["spec.signerName"] = o.Spec.SignerName
		return set
	case *certificatesv1beta1.ClusterTrustBundle:
		set["spec.signerName"] = o.Spec.SignerName
		return set
	case *certificatesv1beta1.PodCertificateRequest:
		set["spec.signerName"], set["spec.podName"], set["spec.nodeName"] = o.Spec.SignerName, o.Spec.PodName,
			string(o.Spec.NodeName)
		return set
	case *resourcev1.ResourceSlice:
		set["spec.nodeName"], set["spec.driver"] = ptr.Deref(o.Spec.NodeName, ""), o.Spec.Driver
		return set
	case *resourcev1beta2.ResourceSlice:
		set["spec.nodeName"], set["spec.driver"] = ptr.Deref(o.Spec.NodeName, ""), o.Spec.Driver
		return set
	case *resourcev1beta1.ResourceSlice:
		set["spec.nodeName"], set["spec.driver"] = o.Spec.NodeName, o.Spec.Driver
		return set
	case *corev1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
		set["spec.restartPolicy"] = string(o.Spec.RestartPolicy)
		set["spec.schedulerName"] = o.Spec.SchedulerName
		set["spec.serviceAccountName"] = o.Spec.ServiceAccountName
		set["spec.hostNetwork"] = strconv.FormatBool(o.Spec.HostNetwork)
		set["status.phase"] = string(o.Status.Phase)
		set["status.podIP"] = o.Status.PodIP
		set["status.podIPs"] = "" // a server takes the name, and has no value
		set["status.nominatedNodeName"] = o.Status.NominatedNodeName
	case *corev1.Event:
		about(set, "involvedObject.", &o.InvolvedObject)
		set["reason"], set["type"] = o.Reason, o.Type
		set["reportingComponent"] = o.ReportingController
		set["source"] = cmp.Or(o.Source.Component, o.ReportingController)
	case *eventsv1.Event:
		about(set, "regarding.", &o.Regarding)
		set["reason"], set["type"] = o.Reason, o.Type
		set["reportingController"] = o.ReportingController
	case *batchv1.Job:
		set["status.successful"] = strconv.Itoa(int(o.Status.Succeeded))
	case *corev1.ReplicationController:
		set["status.replicas"] = strconv.Itoa(int(o.Status.Replicas))
	case *corev1.Secret:
		set["type"] = string(o.Type)
	case *corev1.Service:
		set["spec.clusterIP"] = o.Spec.ClusterIP
		set["spec.type"] = string(o.Spec.Type)
	}
	set["metadata.namespace"] = obj.GetNamespace()
	return set
}

// typed is an object of a built-in type as its Go type.
func typed(obj APIObject) APIObject {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj
	}
	o, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return obj // a custom resource
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return obj
	}
	return o.(APIObject)
}

// about sets the fields of an event's object.
func about(set fields.Set, prefix string, ref *corev1.ObjectReference) {
	for name, value := range map[string]string{
		"kind": ref.Kind, "namespace": ref.Namespace, "name": ref.Name, "uid": string(ref.UID),
		"apiVersion": ref.APIVersion, "resourceVersion": ref.ResourceVersion, "fieldPath": ref.FieldPath,
	} {
		set[prefix+name] = value
	}
}
