package printcolumns

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func init() {
	register(func() []metav1.TableColumnDefinition {
		status, info := corev1.NodeStatus{}.SwaggerDoc(), corev1.NodeSystemInfo{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(), text("Status", "The status of the node"), text("Roles", "The roles of the node"), age(),
			text("Version", info["kubeletVersion"]),
			wide("Internal-IP", status["addresses"]), wide("External-IP", status["addresses"]),
			wide("OS-Image", info["osImage"]),
			wide("Kernel-Version", info["kernelVersion"]), wide("Container-Runtime", info["containerRuntimeVersion"]),
		}
	}, node)
	register(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{name(), text("Status", "The status of the namespace"), age()}
	}, namespace)
	register(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{name(), text("Data", corev1.ConfigMap{}.SwaggerDoc()["data"]), age()}
	}, configMap)
	register(func() []metav1.TableColumnDefinition {
		doc := corev1.Secret{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{name(), text("Type", doc["type"]), text("Data", doc["data"]), age()}
	}, secret)
	register(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{name(), age()}
	}, serviceAccount)
	register(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{name(),
			text("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]), age()}
	}, lease)
	register(func() []metav1.TableColumnDefinition {
		return bindingColumns(rbacv1beta1.RoleBinding{}.SwaggerDoc()["roleRef"], "roleBinding")
	}, roleBinding)
	register(func() []metav1.TableColumnDefinition {
		return bindingColumns(rbacv1beta1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"], "clusterRoleBinding")
	}, clusterRoleBinding)
}

func node(n *corev1.Node, now time.Time) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	address := func(kind corev1.NodeAddressType) string {
		i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == kind })
		if i < 0 {
			return "<none>"
		}
		return n.Status.Addresses[i].Address
	}
	info := &n.Status.NodeInfo
	kernel := or(info.KernelVersion, "<unknown>")
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{n.Name, status, or(nodeRoles(n), "<none>"), ageOf(n, now), info.KubeletVersion,
		address(corev1.NodeInternalIP), address(corev1.NodeExternalIP), or(info.OSImage, "<unknown>"), kernel,
		or(info.ContainerRuntimeVersion, "<unknown>")}
}

// nodeRoles are in the labels node-role.kubernetes.io/<role> and kubernetes.io/role.
func nodeRoles(n *corev1.Node) string {
	var roles []string
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" {
			roles = append(roles, value)
		}
	}
	return addresses(roles)
}

func namespace(n *corev1.Namespace, now time.Time) []any {
	return []any{n.Name, string(n.Status.Phase), ageOf(n, now)}
}

func configMap(c *corev1.ConfigMap, now time.Time) []any {
	return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), ageOf(c, now)}
}

func secret(s *corev1.Secret, now time.Time) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), ageOf(s, now)}
}

func serviceAccount(a *corev1.ServiceAccount, now time.Time) []any {
	return []any{a.Name, ageOf(a, now)}
}

func lease(l *coordinationv1.Lease, now time.Time) []any {
	return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), ageOf(l, now)}
}

func bindingColumns(role, binding string) []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{name(), text("Role", role), age(),
		wide("Users", "Users in the "+binding), wide("Groups", "Groups in the "+binding),
		wide("ServiceAccounts", "ServiceAccounts in the "+binding)}
}

func roleBinding(b *rbacv1.RoleBinding, now time.Time) []any {
	return binding(b, b.RoleRef, b.Subjects, now)
}

func clusterRoleBinding(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
	return binding(b, b.RoleRef, b.Subjects, now)
}

func binding(o metav1.Object, role rbacv1.RoleRef, subjects []rbacv1.Subject, now time.Time) []any {
	of := map[string][]string{}
	for _, s := range subjects {
		name := s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			name = s.Namespace + "/" + name
		}
		of[s.Kind] = append(of[s.Kind], name)
	}
	list := func(kind string) string { return strings.Join(of[kind], ", ") }
	return []any{o.GetName(), role.Kind + "/" + role.Name, ageOf(o, now),
		list(rbacv1.UserKind), list(rbacv1.GroupKind), list(rbacv1.ServiceAccountKind)}
}
