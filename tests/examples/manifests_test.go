package examples

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifest has the objects of a file. Each file has one workload with one container.
type manifest struct {
	name    string
	objects []runtime.Object
	pod     *corev1.PodTemplateSpec
	claims  []corev1.PersistentVolumeClaim
}

// manifests reads all files. Fields that a type does not have are errors.
func manifests(t *testing.T) (all []manifest) {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	files, err := filepath.Glob(filepath.Join("deploy", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := manifest{name: filepath.Base(file)}
		for docs := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text))); ; {
			doc := make([]byte, len(text))
			n, err := docs.Read(doc)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(file, err)
			}
			obj, _, err := decoder.Decode(doc[:n], nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			m.objects = append(m.objects, obj)
			switch o := obj.(type) {
			case *appsv1.Deployment:
				m.pod = &o.Spec.Template
			case *appsv1.DaemonSet:
				m.pod = &o.Spec.Template
			case *appsv1.StatefulSet:
				m.pod, m.claims = &o.Spec.Template, o.Spec.VolumeClaimTemplates
			}
		}
		if m.pod == nil || len(m.pod.Spec.Containers) != 1 {
			t.Fatalf("%s has no workload of one container", file)
		}
		all = append(all, m)
	}
	return all
}

// TestManifestsAreSafe: each pod runs as a user without rights, its file is below a volume
// and not in its root, and the names that it uses exist.
func TestManifestsAreSafe(t *testing.T) {
	all := manifests(t)
	if len(all) != 3 {
		t.Errorf("%d manifests", len(all))
	}
	for _, m := range all {
		pod, c := m.pod.Spec, m.pod.Spec.Containers[0]
		if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil ||
			*s.RunAsUser == 0 {
			t.Errorf("%s: the pod may run as root", m.name)
		} else if s.FSGroup != nil && (s.FSGroupChangePolicy == nil ||
			*s.FSGroupChangePolicy != corev1.FSGroupChangeOnRootMismatch) {
			t.Errorf("%s: the second start of the pod will find the file open to its group", m.name)
		}
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: the container has more rights than it needs", m.name)
		}
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has no limit of memory", m.name)
		}
		if pod.TerminationGracePeriodSeconds == nil {
			t.Errorf("%s has no grace period", m.name)
		}
		if c.ReadinessProbe == nil || c.LivenessProbe == nil {
			t.Errorf("%s has no probes", m.name)
		}
		mount := volumeOf(t, m)
		if path := fileOf(c); filepath.Dir(filepath.Dir(path)) != mount.MountPath {
			t.Errorf("%s: the file %s is not in a folder below the volume at %s", m.name, path, mount.MountPath)
		}
		account := false
		for _, o := range m.objects {
			switch o := o.(type) {
			case *corev1.ServiceAccount:
				account = account || o.Name == pod.ServiceAccountName
			case *rbacv1.ClusterRole:
				for _, r := range o.Rules {
					if slices.Contains(append(slices.Concat(r.APIGroups, r.Resources), r.Verbs...), "*") {
						t.Errorf("%s: a role that may do everything", m.name)
					}
				}
			}
		}
		if !account {
			t.Errorf("%s has no service account %q", m.name, pod.ServiceAccountName)
		}
	}
}

// fileOf returns the path that a container's arguments name.
func fileOf(c corev1.Container) string {
	for _, arg := range c.Args {
		if flag, path, _ := strings.Cut(strings.TrimLeft(arg, "-"), "="); flag == "db" {
			return path
		}
	}
	return ""
}

// volumeOf returns the mount that holds a container's file.
func volumeOf(t *testing.T, m manifest) corev1.VolumeMount {
	t.Helper()
	c := m.pod.Spec.Containers[0]
	for _, mount := range c.VolumeMounts {
		if strings.HasPrefix(fileOf(c), mount.MountPath+"/") {
			for _, v := range m.pod.Spec.Volumes {
				if v.Name == mount.Name {
					return mount
				}
			}
			for _, claim := range m.claims {
				if claim.Name == mount.Name {
					return mount
				}
			}
		}
	}
	t.Fatalf("%s: the file %q is on no volume of the pod", m.name, fileOf(c))
	return corev1.VolumeMount{}
}
