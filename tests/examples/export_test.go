package examples

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// exported are objects of the types that people export most.
func exported() []runtime.Object {
	about := func(kind string) (metav1.TypeMeta, metav1.ObjectMeta) {
		v := map[string]string{"Deployment": "apps/v1", "CronJob": "batch/v1", "Job": "batch/v1"}[kind]
		if v == "" {
			v = "v1"
		}
		return metav1.TypeMeta{APIVersion: v, Kind: kind}, metav1.ObjectMeta{Namespace: "default", Name: "exported"}
	}
	labels := map[string]string{"app": "exported"}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c:1"}}}}
	deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: pod}}
	deployment.TypeMeta, deployment.ObjectMeta = about("Deployment")
	service := &corev1.Service{Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}}
	service.TypeMeta, service.ObjectMeta = about("Service")
	settings := &corev1.ConfigMap{Data: map[string]string{"a": "1"}}
	settings.TypeMeta, settings.ObjectMeta = about("ConfigMap")
	once := &batchv1.Job{Spec: batchv1.JobSpec{Template: *pod.DeepCopy()}}
	once.TypeMeta, once.ObjectMeta = about("Job")
	once.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *",
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod}}}}
	job.TypeMeta, job.ObjectMeta = about("CronJob")
	job.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return []runtime.Object{deployment, service, settings, job, once}
}

// exportsApply mirrors objects, exports them, deletes them on the server and applies the
// export. The server must accept every field, and have the same objects again.
func exportsApply(t *testing.T, s *apiserver.Server) {
	objects := exported()
	types := []string{"deployments", "services", "configmaps", "cronjobs", "jobs"}
	apply(t, s, objects, nil)
	path := filepath.Join(t.TempDir(), "f.db")
	p := start(t, t.TempDir(), nil, built(t, "kubewake"),
		append([]string{"mirror", "-n", "default", "--db", path, "--kubeconfig", s.Kubeconfig(t)}, types...)...)
	for _, typ := range []string{"deployments.apps", "services", "configmaps", "cronjobs.batch", "jobs.batch"} {
		waittest.Eventually(t, typ+" is live", func() bool { // one name is the end of another
			return slices.ContainsFunc(p.errs.all(), func(line string) bool {
				return strings.HasPrefix(line, typ+"/v1 -n default: live at")
			})
		})
	}
	p.end()
	cmd := exec.Command(built(t, "kubewake"), append([]string{"export", "-n", "default", "--db", path}, types...)...)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG=/nonexistent")
	var log strings.Builder
	cmd.Stderr = &log
	manifests, err := cmd.Output()
	if err != nil {
		t.Fatal(err, log.String())
	}
	before := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		remote(t, s, o, func(c dynamic.ResourceInterface, u *unstructured.Unstructured) error {
			was, err := c.Get(t.Context(), u.GetName(), metav1.GetOptions{})
			before[u.GetKind()] = was
			return errors.Join(err, c.Delete(t.Context(), u.GetName(),
				metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
		})
	}
	n := 0
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := dec.Decode(u); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, manifests)
		}
		if u.GetName() != "exported" {
			continue // kubernetes, kube-root-ca.crt
		}
		n++
		apply(t, s, []runtime.Object{u}, nil)
		remote(t, s, u, func(c dynamic.ResourceInterface, u *unstructured.Unstructured) error {
			now, err := c.Get(t.Context(), u.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, o := range []*unstructured.Unstructured{now, before["Job"]} {
				ownPods(o)
			}
			for _, part := range []string{"spec", "data"} {
				if was := before[u.GetKind()].Object[part]; !equality.Semantic.DeepEqual(now.Object[part], was) {
					t.Errorf("%s has %s %v, before it was exported %v", u.GetKind(), part, now.Object[part], was)
				}
			}
			return nil
		})
	}
	if n != len(objects) {
		t.Errorf("%d objects were exported, not %d:\n%s", n, len(objects), manifests)
	}
}

// ownPods removes what the server gives a Job to find its pods, with the Job's UID.
func ownPods(u *unstructured.Unstructured) {
	if u.GetKind() != "Job" {
		return
	}
	unstructured.RemoveNestedField(u.Object, "spec", "selector")
	for _, prefix := range []string{"", "batch.kubernetes.io/"} {
		unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "labels", prefix+"controller-uid")
	}
}
