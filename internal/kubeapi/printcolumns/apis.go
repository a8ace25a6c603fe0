package printcolumns

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	definitions = "apiextensions.k8s.io"
	services    = "apiregistration.k8s.io"
)

// BuiltIn says whether a server has a Go type of the kind. It has those that client-go's
// scheme knows, and those that define further APIs.
func BuiltIn(gvk schema.GroupVersionKind) bool {
	return scheme.Scheme.Recognizes(gvk) || gvk.Group == definitions || gvk.Group == services
}

func init() {
	kinds[schema.GroupVersionKind{Group: services, Version: "v1", Kind: "APIService"}] = &Kind{
		columns: sync.OnceValue(func() []metav1.TableColumnDefinition {
			return []metav1.TableColumnDefinition{
				name(), text("Service", "The reference to the service that hosts this API endpoint."),
				text("Available", "Whether this service is available."), age(),
			}
		}),
		row: func(obj runtime.Object, now time.Time) metav1.TableRow {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return metav1.TableRow{Cells: []any{nil, nil, nil, nil}}
			}
			return metav1.TableRow{Cells: []any{u.GetName(), hostOf(u), available(u), ageOf(u, now)}}
		},
	}
}

func hostOf(u *unstructured.Unstructured) string {
	at, ok, _ := unstructured.NestedMap(u.Object, "spec", "service")
	if !ok || at == nil {
		return "Local"
	}
	namespace, _ := at["namespace"].(string)
	name, _ := at["name"].(string)
	return namespace + "/" + name
}

func available(u *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] != "Available" {
			continue
		}
		status, _ := condition["status"].(string)
		if reason, _ := condition["reason"].(string); status != string(metav1.ConditionTrue) && reason != "" {
			return fmt.Sprintf("%s (%s)", status, reason)
		}
		return status
	}
	return string(metav1.ConditionUnknown)
}
