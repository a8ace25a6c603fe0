package printcolumns

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func init() {
	register(func() []metav1.TableColumnDefinition {
		spec := corev1.ServiceSpec{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(), text("Type", spec["type"]), text("Cluster-IP", spec["clusterIP"]),
			text("External-IP", spec["externalIPs"]),
			text("Port(s)", spec["ports"]), age(), wide("Selector", spec["selector"]),
		}
	}, service)
	register(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{
			name(),
			text("Class", "The name of the IngressClass resource that should be used for additional configuration"),
			text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
			text("Address", "Address is a list containing ingress points for the load-balancer"),
			text("Ports", "Ports of TLS configurations that open"),
			age(),
		}
	}, ingress)
	register(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{name(), text("Endpoints", endpointsDoc["subsets"]), age()}
	}, endpoints)
	register(func() []metav1.TableColumnDefinition {
		doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(), text("AddressType", doc["addressType"]), text("Ports", doc["ports"]),
			text("Endpoints", doc["endpoints"]), age(),
		}
	}, endpointSlice)
	register(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{name(),
			text("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]), age()}
	}, networkPolicy)
}

func service(s *corev1.Service, now time.Time) []any {
	ip := s.Spec.ClusterIP
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			port += ":" + strconv.Itoa(int(p.NodePort))
		}
		ports = append(ports, port+"/"+or(p.Protocol, string(corev1.ProtocolTCP)))
	}
	return []any{s.Name, string(s.Spec.Type), or(ip, "<none>"), externalIP(s), or(strings.Join(ports, ","), "<none>"),
		ageOf(s, now),
		labels.FormatLabels(s.Spec.Selector)}
}

func externalIP(s *corev1.Service) string {
	external := strings.Join(s.Spec.ExternalIPs, ",")
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return or(external, "<none>")
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var points []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			points = append(points, or(in.IP, in.Hostname))
		}
		balancer := addresses(points)
		if balancer != "" && external != "" {
			return balancer + "," + external
		}
		return or(balancer+external, "<pending>")
	}
	return "<unknown>"
}

// addresses are sorted, each once.
func addresses(list []string) string {
	list = slices.DeleteFunc(list, func(a string) bool { return a == "" })
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

func ingress(in *networkingv1.Ingress, now time.Time) []any {
	var points []string
	for _, p := range in.Status.LoadBalancer.Ingress {
		points = append(points, or(p.IP, p.Hostname))
	}
	ports := "80"
	if len(in.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{in.Name, orOf(in.Spec.IngressClassName, "<none>"), hosts(in.Spec.Rules), addresses(points), ports,
		ageOf(in, now)}
}

// hosts are the first three hosts of rules. Rules without a host that come before these
// are not among them, but are counted.
func hosts(rules []networkingv1.IngressRule) string {
	var first []string
	more := false
	for _, r := range rules {
		if more = more || len(first) == 3; !more && r.Host != "" {
			first = append(first, r.Host)
		}
	}
	if more {
		return fmt.Sprintf("%s + %d more...", strings.Join(first, ","), len(rules)-3)
	}
	return or(strings.Join(first, ","), "*")
}

// firstOf is the first three of a list, and how many more there are.
func firstOf(list []string) string {
	if len(list) <= 3 {
		return strings.Join(list, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(list[:3], ","), len(list)-3)
}

//lint:ignore SA1019 the API still has the type, and its clients read it
var endpointsDoc = corev1.Endpoints{}.SwaggerDoc()

//lint:ignore SA1019 as above
func endpoints(e *corev1.Endpoints, now time.Time) []any {
	var list []string
	for _, subset := range e.Subsets {
		for _, a := range subset.Addresses {
			if len(subset.Ports) == 0 { // of a headless service
				list = append(list, a.IP)
			}
		}
		for _, p := range subset.Ports {
			for _, a := range subset.Addresses {
				list = append(list, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	cell := firstOf(list)
	if len(e.Subsets) == 0 {
		cell = "<none>"
	}
	return []any{e.Name, cell, ageOf(e, now)}
}

func endpointSlice(s *discoveryv1.EndpointSlice, now time.Time) []any {
	var ports, list []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		default:
			ports = append(ports, orOf(p.Name, "*"))
		}
	}
	for _, e := range s.Endpoints {
		list = append(list, e.Addresses...)
	}
	return []any{s.Name, string(s.AddressType), or(firstOf(ports), "<unset>"), or(firstOf(list), "<unset>"),
		ageOf(s, now)}
}

func networkPolicy(p *networkingv1.NetworkPolicy, now time.Time) []any {
	return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), ageOf(p, now)}
}
