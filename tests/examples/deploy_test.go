package examples

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubewake/kubewake/tests/apiserver"
)

// TestManifests submits each manifest to a real API server. Then it runs the container's
// command, as the manifest's user and account, on a folder like its volume, for two
// lives. The probes must succeed, no request may be refused, and the second life must
// read nothing again. Last it applies the output of `kubewake export`.
func TestManifests(t *testing.T) {
	t.Parallel()
	s := apiserver.Start(t, apiserver.Options{})
	admin := s.Client(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d1"}}
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cm := setting("a", "1")
	cm.Namespace = "default"
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests(t) {
		t.Run(m.name, func(t *testing.T) {
			apply(t, s, m.objects, []string{metav1.DryRunAll})
			apply(t, s, slices.DeleteFunc(slices.Clone(m.objects), workload), nil)
			kubeconfig := kubeconfigOf(t, s, m)
			volume, user := volumeFor(t, m)
			began := time.Now()
			for life := range 2 {
				if life == 1 {
					began = time.Now()
				}
				runContainer(t, m, kubeconfig, volume, user)
			}
			requests, err := s.Requests(time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			n, p := 0, proofs{}
			for _, r := range requests {
				if r.User != "system:serviceaccount:default:"+m.pod.Spec.ServiceAccountName {
					continue
				}
				n++
				if r.Code == http.StatusForbidden || r.Code == http.StatusUnauthorized {
					t.Errorf("refused: %s %s", r.Verb, r.URI)
				}
				if p.readsAll(t, r) && !r.Time.Before(began) {
					t.Errorf("the second life has read everything: %s %s", r.Verb, r.URI)
				}
			}
			if n < 4 {
				t.Errorf("it has sent %d requests", n)
			}
			for _, o := range m.objects { // the next manifest may use the names
				if !workload(o) {
					remote(t, s, o, func(c dynamic.ResourceInterface, u *unstructured.Unstructured) error {
						return c.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{})
					})
				}
			}
		})
	}
	t.Run("export", func(t *testing.T) { exportsApply(t, s) })
}

// workload says whether an object has pods, which nothing here would run.
func workload(o runtime.Object) bool {
	switch o.(type) {
	case *corev1.ServiceAccount, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
		return false
	}
	return true
}

func remote(t *testing.T, s *apiserver.Server, o runtime.Object,
	fn func(dynamic.ResourceInterface, *unstructured.Unstructured) error) {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	var c dynamic.ResourceInterface = dynamic.NewForConfigOrDie(s.Config()).Resource(gvr)
	if u.GetNamespace() != "" {
		c = dynamic.NewForConfigOrDie(s.Config()).Resource(gvr).Namespace(u.GetNamespace())
	}
	if err := fn(c, u); err != nil {
		t.Fatalf("%s: %v", u.GetKind(), err)
	}
}

func apply(t *testing.T, s *apiserver.Server, objects []runtime.Object, dryRun []string) {
	t.Helper()
	for _, o := range objects {
		remote(t, s, o, func(c dynamic.ResourceInterface, u *unstructured.Unstructured) error {
			_, err := c.Create(t.Context(), u,
				metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
			return err
		})
	}
}

// kubeconfigOf is for the manifest's service account, once it has its rights.
func kubeconfigOf(t *testing.T, s *apiserver.Server, m manifest) string {
	t.Helper()
	account := m.pod.Spec.ServiceAccountName
	admin := s.Client(t)
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.Config()
	c := api.NewConfig()
	c.Clusters["test"] = &api.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["pod"] = &api.AuthInfo{Token: token.Status.Token}
	c.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "pod"}
	c.CurrentContext = "test"
	// The user of the manifest must have access to it.
	dir, err := os.MkdirTemp("", "manifest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "kubeconfig")
	if err := errors.Join(clientcmd.WriteToFile(*c, path), os.Chmod(dir, 0o755), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, o := range m.objects {
		role, ok := o.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		for _, r := range role.Rules {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					attr := authorizationv1.ResourceAttributes{Group: r.APIGroups[0], Resource: resource, Verb: verb}
					if len(r.ResourceNames) > 0 {
						attr.Name = r.ResourceNames[0]
					}
					untilAllowed(t, admin, "system:serviceaccount:default:"+account, attr)
				}
			}
		}
	}
	return path
}

func untilAllowed(t *testing.T, admin kubernetes.Interface, user string, attr authorizationv1.ResourceAttributes) {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		ResourceAttributes: &attr}}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && got.Status.Allowed, err
		})
	if err != nil {
		t.Fatalf("%+v: %v", attr, err)
	}
}

// volumeFor returns a folder with the owner and mode that the kubelet gives a volume, and
// the user that the pod runs as. Only root can run as another user.
func volumeFor(t *testing.T, m manifest) (dir string, user *syscall.SysProcAttr) {
	t.Helper()
	dir, err := os.MkdirTemp("", "volume-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	spec := m.pod.Spec
	uid, gid := int(*spec.SecurityContext.RunAsUser), int(*spec.SecurityContext.RunAsGroup)
	root := os.Geteuid() == 0
	if root {
		user = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	mode := fs.FileMode(0o755) // of a hostPath
	mount := volumeOf(t, m)
	switch {
	case slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == mount.Name && v.EmptyDir != nil
	}):
		mode = 0o777
	case spec.SecurityContext.FSGroup != nil:
		mode = 0o775 | fs.ModeSetgid
		if root {
			err = os.Chown(dir, 0, int(*spec.SecurityContext.FSGroup))
		}
	}
	if err = errors.Join(err, os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	for _, c := range spec.InitContainers {
		if !root {
			continue // it gives folders away; the folder is this user's in any case
		}
		args := slices.Clone(c.Command)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], mount.MountPath, dir)
		}
		for range 2 { // at each start of a pod
			if p := start(t, dir, nil, args[0], args[1:]...); p.wait() != nil {
				t.Fatalf("%s:\n%s", c.Name, p.all())
			}
		}
	}
	return dir, user
}

// runContainer runs the manifest's container until its probes are content.
func runContainer(t *testing.T, m manifest, kubeconfig, volume string, user *syscall.SysProcAttr) {
	t.Helper()
	c := m.pod.Spec.Containers[0]
	addr, port := apiserver.FreeAddress(t), int32(0)
	args := append(slices.Clone(c.Command[1:]), c.Args...)
	for i, arg := range args {
		flag, value, _ := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(value, ":"):
			if _, err := fmt.Sscanf(value, ":%d", &port); err != nil {
				t.Fatal(err)
			}
			args[i] = flag + "=" + addr
		case strings.HasPrefix(value, "/"):
			args[i] = flag + "=" + strings.Replace(value, volumeOf(t, m).MountPath, volume, 1)
		}
	}
	// there is nothing to write to but the volume
	env := []string{"KUBECONFIG=" + kubeconfig, "HOME=/proc/none", "TMPDIR=/proc/none"}
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil || e.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
			t.Fatalf("%s is not known here", e.Name)
		}
		env = append(env, e.Name+"=d1")
	}
	p := startAs(t, user, volume, env, built(t, c.Command[0]), args...)
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if probe == nil {
			continue
		}
		i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return intstr.FromString(p.Name) == probe.HTTPGet.Port
		})
		if i < 0 || c.Ports[i].ContainerPort != port {
			t.Fatalf("the probe asks at port %s, the container answers at %d", probe.HTTPGet.Port.String(), port)
		}
		answers(t, "http://"+addr+probe.HTTPGet.Path, p)
	}
	st, err := os.Stat(strings.Replace(fileOf(c), volumeOf(t, m).MountPath, volume, 1))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", st, err)
	}
	p.end()
}

// answers waits until the address answers with 200.
func answers(t *testing.T, url string, p *program) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			resp, err := http.Get(url)
			if err != nil {
				if last = err.Error(); p.errs.over() {
					return false, errors.New("it has ended")
				}
				return false, nil
			}
			defer resp.Body.Close()
			last = resp.Status
			return resp.StatusCode == http.StatusOK, nil
		})
	if err != nil {
		t.Fatalf("%s: %s\n%s", url, last, p.all())
	}
}
