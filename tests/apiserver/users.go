package apiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The users of a server.
const (
	Admin      = "admin"      // may do everything
	Restricted = "restricted" // may do what it was granted
	Other      = "other"      // also with granted rights, for tests that change identity
)

// Config of the admin, without a limit on the rate of requests. The caller
// owns it.
func (s *Server) Config() *rest.Config { return s.ConfigFor(Admin) }

// ConfigFor is Config for another user. Users that the options do not name get 401.
func (s *Server) ConfigFor(user string) *rest.Config {
	ca, _ := os.ReadFile(s.path(filepath.Join("certs", "apiserver.crt")))
	return &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", s.port),
		BearerToken:     token(user),
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		QPS:             -1,
	}
}

// Client returns a client of the admin.
func (s *Server) Client(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Kubeconfig returns a file with the admin's Config. The file lasts as long as the test.
func (s *Server) Kubeconfig(t testing.TB) string { return s.KubeconfigFor(t, Admin) }

// KubeconfigFor is Kubeconfig for another user.
func (s *Server) KubeconfigFor(t testing.TB, user string) string {
	t.Helper()
	cfg := s.ConfigFor(user)
	out := clientcmdapi.NewConfig()
	out.Clusters["test"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	out.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	out.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: user}
	out.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*out, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Grant gives the user exactly the rights in rules, in every namespace, and waits until
// the server acts on it. Without rules it takes all rights away.
func (s *Server) Grant(ctx context.Context, user string, rules ...rbacv1.PolicyRule) error {
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	name := metav1.ObjectMeta{Name: "test:" + user}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: rules}
	if _, err := client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	before := s.rights[user]
	s.rights[user] = rules
	for _, attr := range attributes(rules) {
		if err := untilAllowed(ctx, client, user, attr, true); err != nil {
			return err
		}
	}
	kept := map[authorizationv1.ResourceAttributes]bool{}
	for _, attr := range attributes(rules) {
		kept[attr] = true
	}
	for _, attr := range attributes(before) {
		if !kept[attr] {
			if err := untilAllowed(ctx, client, user, attr, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// attributes returns one request for each right in the rules.
func attributes(rules []rbacv1.PolicyRule) []authorizationv1.ResourceAttributes {
	var out []authorizationv1.ResourceAttributes
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					out = append(out, authorizationv1.ResourceAttributes{Group: group, Resource: resource, Verb: verb})
				}
			}
		}
	}
	return out
}

func untilAllowed(
	ctx context.Context, client kubernetes.Interface, user string, attr authorizationv1.ResourceAttributes, want bool,
) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
		ResourceAttributes: &attr}}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 10*time.Second, true,
		func(ctx context.Context) (bool, error) {
			got, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && got.Status.Allowed == want, err
		})
}

// The files that the server is started with.
const (
	tokenFile  = "tokens.csv"
	keyFile    = "service-account.key"
	policyFile = "audit-policy.yaml"
	auditFile  = "audit.log"
)

func token(user string) string { return user + "-token" }

// writeFiles creates the files that both processes read.
func (s *Server) writeFiles() error {
	var tokens bytes.Buffer
	fmt.Fprintf(&tokens, "%s,%s,%s,system:masters\n", token(Admin), Admin, Admin)
	for _, user := range s.opts.Users {
		fmt.Fprintf(&tokens, "%s,%s,%s\n", token(user), user, user)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		tokenFile:  tokens.Bytes(),
		keyFile:    pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		policyFile: []byte(auditPolicy),
	} {
		if err := os.WriteFile(s.path(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
