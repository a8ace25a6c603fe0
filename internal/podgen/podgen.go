// Package podgen makes pods that look like a cluster's: a thousand workloads in twenty
// namespaces, each pod 6 to 8 KB as JSON with the managedFields that its fields imply.
// Enough of a pod does not repeat (container IDs, addresses, UIDs, times) that pods
// compress like real ones.
package podgen

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Generator makes pods. It is immutable and safe for concurrent use.
type Generator struct {
	seed uint64
}

// New returns a generator. Equal seeds give equal pods.
func New(seed uint64) *Generator { return &Generator{seed: seed} }

// epoch is when the oldest pod was created.
var epoch = time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)

// source is a stream of random choices for one subject.
type source struct{ *rand.Rand }

func (g *Generator) source(kind, i uint64) source {
	return source{rand.New(rand.NewPCG(g.seed^kind<<56, i))}
}

func (r source) pick(from []string) string { return from[r.IntN(len(from))] }

func (r source) hex(n int) string {
	b := make([]byte, (n+1)/2)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return hex.EncodeToString(b)[:n]
}

// suffix is a name part as the API server generates it.
func (r source) suffix(n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func (r source) uid() types.UID {
	h := r.hex(32)
	return types.UID(fmt.Sprintf("%s-%s-4%s-a%s-%s", h[:8], h[8:12], h[13:16], h[17:20], h[20:]))
}

func (r source) chance(percent int) bool { return r.IntN(100) < percent }

// Pod returns pod i, running and scheduled. It sets a UID but no
// resourceVersion, and depends on nothing but the generator's seed and i.
func (g *Generator) Pod(i int) *corev1.Pod {
	r := g.source(1, uint64(i))
	share := r.Float64()
	w := g.workload(int(share * share * workloads)) // few are large, most small
	created := epoch.Add(time.Duration(r.IntN(200*24*3600)) * time.Second)
	node := r.IntN(nodes)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              w.name + "-" + w.revision + "-" + r.suffix(5),
			GenerateName:      w.name + "-" + w.revision + "-",
			Namespace:         w.namespace,
			UID:               r.uid(),
			CreationTimestamp: metav1.NewTime(created),
			Labels:            w.podLabels(r),
			Annotations:       w.podAnnotations(r, created),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: w.name + "-" + w.revision, UID: w.ownerUID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName:            w.name,
			DeprecatedServiceAccount:      w.name,
			NodeName:                      nodeName(node),
			RestartPolicy:                 corev1.RestartPolicyAlways,
			DNSPolicy:                     corev1.DNSClusterFirst,
			SchedulerName:                 "default-scheduler",
			TerminationGracePeriodSeconds: new(w.grace),
			Priority:                      new(w.priority),
			PreemptionPolicy:              new(corev1.PreemptLowerPriority),
			EnableServiceLinks:            new(true),
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(w.user), RunAsNonRoot: new(true),
				FSGroup: new(w.user)},
			Tolerations: w.tolerations(),
		},
	}
	token := "kube-api-access-" + r.suffix(5)
	p.Spec.Volumes = append(w.volumes(), tokenVolume(token))
	app := w.container(token)
	p.Spec.Containers = []corev1.Container{app}
	if w.sidecar {
		p.Spec.Containers = append(p.Spec.Containers, proxyContainer(token))
	}
	w.fill(r, &p.Spec.Containers[0])
	p.Status = status(r, p, node, created)
	p.ManagedFields = managedFields(p, w, created)
	return p
}

func nodeName(n int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", 16+n%4, n*7%256, n*31%251+3)
}

func nodeIP(n int) string { return fmt.Sprintf("10.%d.%d.%d", 16+n%4, n*7%256, n*31%251+3) }

func tokenVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)),
				Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1",
					FieldPath: "metadata.namespace"},
			}}}},
		},
	}}}
}

func proxyContainer(token string) corev1.Container {
	return corev1.Container{
		Name: "mesh-proxy",
		Image: "registry.example.net/mesh/proxy@sha256:" + source{rand.New(rand.NewPCG(7,
			7))}.hex(64),
		Args: []string{"proxy", "sidecar", "--log-level=warning"},
		Ports: []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15090,
			Protocol: corev1.ProtocolTCP}},
		Resources:                resources("10m", "64Mi", "", "256Mi"),
		VolumeMounts:             []corev1.VolumeMount{tokenMount(token)},
		ImagePullPolicy:          corev1.PullIfNotPresent,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
}

func tokenMount(token string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: token, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
}

// resources returns requests and limits; an empty quantity is left out.
func resources(cpu, memory, cpuLimit, memoryLimit string) corev1.ResourceRequirements {
	req := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, q := range []struct {
		list  corev1.ResourceList
		name  corev1.ResourceName
		value string
	}{
		{req.Requests, corev1.ResourceCPU, cpu}, {req.Requests, corev1.ResourceMemory, memory},
		{req.Limits, corev1.ResourceCPU, cpuLimit}, {req.Limits, corev1.ResourceMemory, memoryLimit},
	} {
		if q.value != "" {
			q.list[q.name] = resource.MustParse(q.value)
		}
	}
	return req
}

func httpProbe(path string, port int, delay int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(int32(port)), Scheme: corev1.URISchemeHTTP,
		}},
		InitialDelaySeconds: delay, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
	}
}
