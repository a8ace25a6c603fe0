package podgen

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// imageID is the digest a registry gives an image: equal for equal images.
func imageID(image string) string {
	if strings.Contains(image, "@sha256:") {
		return image
	}
	h := fnv.New64a()
	h.Write([]byte(image))
	repo, _, _ := strings.Cut(image, ":")
	return repo + "@sha256:" + source{rand.New(rand.NewPCG(h.Sum64(), 1))}.hex(64)
}

// fieldSet is a set of field paths in the form FieldsV1 gives it.
type fieldSet map[string]fieldSet

// add inserts the path of elements and returns the set below it.
func (f fieldSet) add(path ...string) fieldSet {
	for _, e := range path {
		next := f[e]
		if next == nil {
			next = fieldSet{}
			f[e] = next
		}
		f = next
	}
	return f
}

// leaves inserts several fields.
func (f fieldSet) leaves(names ...string) {
	for _, n := range names {
		f.add("f:" + n)
	}
}

// parent inserts the marker of a field that is owned itself, with leaves in it.
func (f fieldSet) parent(name string, leaves ...string) fieldSet {
	sub := f.add("f:" + name)
	sub.add(".")
	sub.leaves(leaves...)
	return sub
}

func (f fieldSet) appendJSON(b []byte) []byte {
	names := make([]string, 0, len(f))
	for n := range f {
		names = append(names, n)
	}
	slices.Sort(names)
	b = append(b, '{')
	for i, n := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, n)
		b = append(b, ':')
		b = f[n].appendJSON(b)
	}
	return append(b, '}')
}

func managedFields(p *corev1.Pod, w *workload, created time.Time) []metav1.ManagedFieldsEntry {
	entry := func(manager, subresource string, f fieldSet, after time.Duration) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(created.Add(after))
		e := metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{}, Subresource: subresource,
		}
		e.FieldsV1.SetRawBytes(f.appendJSON(nil))
		return e
	}
	scheduler := fieldSet{}
	scheduler.add("f:status", "f:conditions", `k:{"type":"PodScheduled"}`).leaves("lastTransitionTime", "status",
		"type")
	entries := []metav1.ManagedFieldsEntry{
		entry("kube-controller-manager", "", controllerFields(p), 0),
		entry("kube-scheduler", "status", scheduler, time.Second),
	}
	if w.sidecar {
		injector := fieldSet{}
		injector.add("f:metadata", "f:annotations").leaves("sidecar.mesh.example.net/status")
		injector.add("f:metadata", "f:labels").leaves("mesh.example.net/revision")
		entries = append(entries, entry("sidecar-injector", "", injector, 0))
	}
	return append(entries, entry("kubelet", "status", kubeletFields(p), time.Minute))
}

// controllerFields are the fields that the ReplicaSet controller set when it created p.
func controllerFields(p *corev1.Pod) fieldSet {
	f := fieldSet{}
	meta := f.add("f:metadata")
	meta.leaves("generateName")
	annotations, labels := meta.parent("annotations"), meta.parent("labels")
	for k := range p.Annotations {
		if k != "sidecar.mesh.example.net/status" {
			annotations.leaves(k)
		}
	}
	for k := range p.Labels {
		if k != "mesh.example.net/revision" {
			labels.leaves(k)
		}
	}
	meta.parent("ownerReferences").add(`k:{"uid":"` + string(p.OwnerReferences[0].UID) + `"}`)
	spec := f.add("f:spec")
	spec.leaves("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "serviceAccount",
		"serviceAccountName",
		"terminationGracePeriodSeconds")
	spec.parent("securityContext", "fsGroup", "runAsNonRoot", "runAsUser")
	if len(p.Spec.Tolerations) > 2 {
		spec.leaves("tolerations")
	}
	c := p.Spec.Containers[0]
	cf := spec.add("f:containers", `k:{"name":"`+c.Name+`"}`)
	cf.add(".")
	cf.leaves("image", "imagePullPolicy", "name", "terminationMessagePath", "terminationMessagePolicy")
	if len(c.Env) > 0 {
		env := cf.parent("env")
		for _, v := range c.Env {
			e := env.add(`k:{"name":"` + v.Name + `"}`)
			e.add(".")
			e.leaves("name")
			if v.ValueFrom == nil {
				e.leaves("value")
			} else {
				e.parent("valueFrom").parent("secretKeyRef")
			}
		}
	}
	probes := []string{"readinessProbe"}
	if c.LivenessProbe != nil {
		probes = append(probes, "livenessProbe")
	}
	for _, probe := range probes {
		cf.parent(probe, "failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold",
			"timeoutSeconds").
			parent("httpGet", "path", "port", "scheme")
	}
	port := cf.parent("ports").add(`k:{"containerPort":` + strconv.Itoa(int(c.Ports[0].ContainerPort)) +
		`,"protocol":"TCP"}`)
	port.add(".")
	port.leaves("containerPort", "name", "protocol")
	res := cf.parent("resources")
	res.parent("limits", "memory")
	res.parent("requests", "cpu", "memory")
	if c.SecurityContext != nil {
		cf.parent("securityContext", "allowPrivilegeEscalation", "readOnlyRootFilesystem").parent("capabilities",
			"drop")
	}
	if len(p.Spec.Volumes) > 1 {
		volumes, mounts := spec.parent("volumes"), cf.parent("volumeMounts")
		for _, v := range p.Spec.Volumes[:len(p.Spec.Volumes)-1] { // the token's comes from admission
			vf := volumes.add(`k:{"name":"` + v.Name + `"}`)
			vf.add(".")
			vf.leaves("name")
			if v.ConfigMap != nil {
				vf.parent("configMap", "defaultMode", "name")
			} else {
				vf.parent("secret", "defaultMode", "secretName")
			}
		}
		for _, m := range c.VolumeMounts[:len(c.VolumeMounts)-1] {
			mf := mounts.add(`k:{"mountPath":"` + m.MountPath + `"}`)
			mf.add(".")
			mf.leaves("mountPath", "name")
			if m.ReadOnly {
				mf.leaves("readOnly")
			}
		}
	}
	return f
}

// kubeletFields are the fields that the kubelet reports.
func kubeletFields(p *corev1.Pod) fieldSet {
	f := fieldSet{}
	st := f.add("f:status")
	st.leaves("containerStatuses", "hostIP", "phase", "podIP", "startTime")
	conditions := st.add("f:conditions")
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			continue
		}
		cf := conditions.add(`k:{"type":"` + string(c.Type) + `"}`)
		cf.add(".")
		cf.leaves("lastProbeTime", "lastTransitionTime", "status", "type")
	}
	ip := st.parent("podIPs").add(`k:{"ip":"` + p.Status.PodIP + `"}`)
	ip.add(".")
	ip.leaves("ip")
	return f
}
