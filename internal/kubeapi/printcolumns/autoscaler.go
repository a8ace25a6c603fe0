package printcolumns

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() {
	register(func() []metav1.TableColumnDefinition {
		spec := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(), text("Reference", spec["scaleTargetRef"]), text("Targets", spec["metrics"]),
			text("MinPods", spec["minReplicas"]),
			text("MaxPods", spec["maxReplicas"]),
			text("Replicas", autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()["currentReplicas"]), age(),
		}
	}, autoscaler)
}

func autoscaler(h *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	least := "<unset>"
	if h.Spec.MinReplicas != nil {
		least = strconv.Itoa(int(*h.Spec.MinReplicas))
	}
	var targets []string
	for i := range h.Spec.Metrics {
		current := &autoscalingv2.MetricStatus{}
		if i < len(h.Status.CurrentMetrics) {
			current = &h.Status.CurrentMetrics[i]
		}
		targets = append(targets, target(&h.Spec.Metrics[i], current))
	}
	cell := or(strings.Join(targets, ", "), "<none>")
	if more := len(targets) - 2; more > 0 {
		cell = fmt.Sprintf("%s + %d more...", strings.Join(targets[:2], ", "), more)
	}
	ref := h.Spec.ScaleTargetRef
	return []any{h.Name, ref.Kind + "/" + ref.Name, cell, least, int64(h.Spec.MaxReplicas),
		int64(h.Status.CurrentReplicas), ageOf(h, now)}
}

// target is the present value of a metric and the wanted one. The status of a metric may
// not be there yet.
func target(m *autoscalingv2.MetricSpec, now *autoscalingv2.MetricStatus) string {
	var is *autoscalingv2.MetricValueStatus
	switch {
	case m.External != nil:
		if now.External != nil {
			is = &now.External.Current
		}
		return amount(m.External.Target, is)
	case m.Object != nil:
		if now.Object != nil {
			is = &now.Object.Current
		}
		return amount(m.Object.Target, is)
	case m.Pods != nil:
		if now.Pods != nil {
			is = &now.Pods.Current
		}
		return average(is) + "/" + quantity(m.Pods.Target.AverageValue)
	case m.Resource != nil:
		if now.Resource != nil {
			is = &now.Resource.Current
		}
		return utilization(string(m.Resource.Name), m.Resource.Target, is)
	case m.ContainerResource != nil:
		if now.ContainerResource != nil {
			is = &now.ContainerResource.Current
		}
		return utilization(string(m.ContainerResource.Name), m.ContainerResource.Target, is)
	}
	return "<unknown type>"
}

// amount is that of a metric that counts something: an average of the pods, or a value.
func amount(want autoscalingv2.MetricTarget, is *autoscalingv2.MetricValueStatus) string {
	current := "<unknown>"
	if want.AverageValue != nil {
		if is != nil && is.AverageValue != nil {
			current = quantity(is.AverageValue)
		}
		return fmt.Sprintf("%s/%s (avg)", current, quantity(want.AverageValue))
	}
	if is != nil {
		current = quantity(is.Value)
	}
	return fmt.Sprintf("%s/%s", current, quantity(want.Value))
}

// utilization is that of processor time or memory: an average amount, or a share of what
// the pods request.
func utilization(resource string, want autoscalingv2.MetricTarget, is *autoscalingv2.MetricValueStatus) string {
	current, wanted := "<unknown>", "<auto>"
	if want.AverageValue != nil {
		current, wanted = average(is), quantity(want.AverageValue)
	} else {
		if is != nil && is.AverageUtilization != nil {
			current = fmt.Sprintf("%d%%", *is.AverageUtilization)
		}
		if want.AverageUtilization != nil {
			wanted = fmt.Sprintf("%d%%", *want.AverageUtilization)
		}
	}
	return fmt.Sprintf("%s: %s/%s", resource, current, wanted)
}

// average is a present average. A server says nil of a status without one.
func average(is *autoscalingv2.MetricValueStatus) string {
	if is == nil {
		return "<unknown>"
	}
	return quantity(is.AverageValue)
}

// quantity is q as text. String would keep the text in q, which others may read.
func quantity(q *resource.Quantity) string {
	if q != nil {
		c := *q
		q = &c
	}
	return q.String()
}
