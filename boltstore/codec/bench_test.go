package codec_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// pod is a typical pod: two containers, conditions, managedFields.
func pod() *corev1.Pod {
	at := metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC).Local())
	container := func(name string, port int32) corev1.Container {
		return corev1.Container{
			Name: name, Image: "registry.example.org/team/" + name + ":v1.2.3@sha256:" + strings.Repeat("ab", 32),
			Args:  []string{"--listen=:8080", "--log-level=info", "--leader-elect"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
			Env: []corev1.EnvVar{
				{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
				}},
				{Name: "MODE", Value: "production"},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("256Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
			},
			LivenessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz",
					Port: intstr.FromString("http"), Scheme: "HTTP"}},
				PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-x2x4z", ReadOnly: true,
				MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			ImagePullPolicy:          corev1.PullIfNotPresent,
		}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-7d4b9c6f5-x2x4z", GenerateName: "web-7d4b9c6f5-", Namespace: "team-a",
			UID: "6f1c7a52-9c3e-4f0b-8a7d-2b1e5c9d0f34", ResourceVersion: "123456789", CreationTimestamp: at,
			Labels: map[string]string{"app.kubernetes.io/name": "web",
				"app.kubernetes.io/instance": "web-prod", "pod-template-hash": "7d4b9c6f5"},
			Annotations: map[string]string{"checksum/config": strings.Repeat("0f", 32),
				"prometheus.io/scrape": "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet",
				Name: "web-7d4b9c6f5", UID: "0b1e5c9d-9c3e-4f0b-8a7d-6f1c7a522b1e"}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container("web", 8080), container("proxy", 9090)},
			Volumes: []corev1.Volume{{Name: "config",
				VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}}},
			RestartPolicy:      corev1.RestartPolicyAlways,
			DNSPolicy:          corev1.DNSClusterFirst,
			ServiceAccountName: "web", NodeName: "node-17.example.org", SchedulerName: "default-scheduler",
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists",
				Effect: "NoExecute"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.0.0.17", PodIP: "10.1.2.3", StartTime: &at,
			QOSClass: corev1.PodQOSBurstable},
	}
	for _, t := range []corev1.PodConditionType{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: t, Status: "True", LastTransitionTime: at})
	}
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + strings.Repeat("cd", 32),
			Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	for _, m := range []string{"kube-controller-manager", "kubelet"} {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: m, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
			FieldsType: "FieldsV1",
			FieldsV1:   metav1.NewFieldsV1(fieldSet()),
		})
	}
	return p
}

func fieldSet() string {
	var b strings.Builder
	b.WriteString(`{"f:spec":{"f:containers":{`)
	for i := range 12 {
		fmt.Fprintf(&b, `"k:{\"name\":\"c%d\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{".":{},"f:limits":{}}},`, i)
	}
	b.WriteString(`"f:last":{}}}}`)
	return b.String()
}

func unstructuredPod() *unstructured.Unstructured {
	b, err := json.Marshal(pod())
	if err != nil {
		panic(err)
	}
	u := unstructuredOf(map[string]any{})
	if err := kjson.Unmarshal(b, &u.Object); err != nil {
		panic(err)
	}
	u.Object["apiVersion"], u.Object["kind"] = "v1", "Pod"
	return u
}

// structPod is a Pod for the JSON codec, since it is not of k8s.io/api.
type structPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              corev1.PodSpec   `json:"spec"`
	Status            corev1.PodStatus `json:"status"`
}

func (p *structPod) DeepCopyObject() runtime.Object { c := *p; return &c }

func BenchmarkCodecs(b *testing.B) {
	p := pod()
	for _, obj := range []runtime.Object{p, &structPod{ObjectMeta: p.ObjectMeta, Spec: p.Spec, Status: p.Status},
		unstructuredPod()} {
		c := codecFor(b, obj)
		data, err := c.Append(nil, obj)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.Name()+"/encode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if data, err = c.Append(data[:0], obj); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(data)), "bytes")
		})
		b.Run(c.Name()+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
