package main

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// column is a column of a table. Wide columns come last, and only with -o wide.
type column struct {
	name  string
	wide  bool
	value func(o map[string]any) string
}

// groups has the groups of the kinds in columns, except for the core group. A kind of
// that name in another group is another type.
var groups = map[string]string{"Deployment": "apps", "StatefulSet": "apps", "ReplicaSet": "apps", "DaemonSet": "apps"}

// columns has kubectl's columns for common kinds. A server prints tables itself, but
// there is no server here.
var columns = map[string][]column{
	"Pod": {
		{name: "Ready", value: podReady}, {name: "Status", value: podStatus}, {name: "Restarts", value: podRestarts},
		{name: "IP", wide: true, value: field("status", "podIP")}, {name: "Node", wide: true, value: field("spec", "nodeName")},
	},
	"Deployment":  {{name: "Ready", value: ratio("readyReplicas")}, {name: "Up-to-date", value: number("status", "updatedReplicas")}, {name: "Available", value: number("status", "availableReplicas")}},
	"StatefulSet": {{name: "Ready", value: ratio("readyReplicas")}},
	"ReplicaSet":  {{name: "Desired", value: number("spec", "replicas")}, {name: "Current", value: number("status", "replicas")}, {name: "Ready", value: number("status", "readyReplicas")}},
	"DaemonSet":   {{name: "Desired", value: number("status", "desiredNumberScheduled")}, {name: "Current", value: number("status", "currentNumberScheduled")}, {name: "Ready", value: number("status", "numberReady")}},
	"Service":     {{name: "Type", value: field("spec", "type")}, {name: "Cluster-IP", value: field("spec", "clusterIP")}, {name: "Port(s)", value: servicePorts}},
	"ConfigMap":   {{name: "Data", value: dataCount}},
	"Secret":      {{name: "Type", value: field("type")}, {name: "Data", value: dataCount}},
	"Namespace":   {{name: "Status", value: field("status", "phase")}},
	"Node":        {{name: "Status", value: nodeStatus}, {name: "Version", value: field("status", "nodeInfo", "kubeletVersion")}},
}

// tableOf returns a table with a row for each object.
func tableOf(group, kind string, objs []*unstructured.Unstructured, now time.Time) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string"}}}
	add := func(c column, priority int32) {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: c.name, Type: "string", Priority: priority})
	}
	var narrow, wide []column
	for _, c := range columns[kind] {
		if group != groups[kind] {
			break
		}
		if c.wide {
			wide = append(wide, c)
		} else {
			narrow = append(narrow, c)
			add(c, 0)
		}
	}
	add(column{name: "Age"}, 0)
	for _, c := range wide {
		add(c, 1)
	}
	for _, u := range objs {
		cells := []any{u.GetName()}
		for _, c := range narrow {
			cells = append(cells, c.value(u.Object))
		}
		since := "<unknown>"
		if ts := u.GetCreationTimestamp(); !ts.IsZero() {
			since = duration.HumanDuration(now.Sub(ts.Time))
		}
		cells = append(cells, since)
		for _, c := range wide {
			cells = append(cells, c.value(u.Object))
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: u}})
	}
	return t
}

func humanDuration(d time.Duration) string { return duration.HumanDuration(d) }

func field(path ...string) func(map[string]any) string {
	return func(o map[string]any) string {
		s, ok, err := unstructured.NestedString(o, path...)
		if !ok || err != nil || s == "" {
			return "<none>"
		}
		return s
	}
}

func number(path ...string) func(map[string]any) string {
	return func(o map[string]any) string {
		n, _, _ := unstructured.NestedInt64(o, path...) // 0 if the field is missing
		return fmt.Sprint(n)
	}
}

func ratio(ready string) func(map[string]any) string {
	return func(o map[string]any) string {
		return number("status", ready)(o) + "/" + number("spec", "replicas")(o)
	}
}

func maps(o map[string]any, path ...string) (out []map[string]any) {
	list, _, _ := unstructured.NestedSlice(o, path...) // empty if the field is missing
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func podReady(o map[string]any) string {
	ready := 0
	for _, c := range maps(o, "status", "containerStatuses") {
		if c["ready"] == true {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(maps(o, "spec", "containers")))
}

// podStatus returns the most telling reason, as kubectl chooses it.
func podStatus(o map[string]any) string {
	status := field("status", "phase")(o)
	if reason, ok, _ := unstructured.NestedString(o, "status", "reason"); ok && reason != "" {
		status = reason
	}
	for _, c := range maps(o, "status", "containerStatuses") {
		for _, state := range []string{"waiting", "terminated"} {
			if reason, ok, _ := unstructured.NestedString(c, "state", state, "reason"); ok && reason != "" {
				status = reason
			}
		}
	}
	if _, deleting, _ := unstructured.NestedString(o, "metadata", "deletionTimestamp"); deleting {
		status = "Terminating"
	}
	return status
}

func podRestarts(o map[string]any) string {
	var n int64
	for _, c := range maps(o, "status", "containerStatuses") {
		if r, ok := c["restartCount"].(int64); ok {
			n += r
		}
	}
	return fmt.Sprint(n)
}

func servicePorts(o map[string]any) string {
	var ports []string
	for _, p := range maps(o, "spec", "ports") {
		s := fmt.Sprint(p["port"])
		if np, ok := p["nodePort"]; ok {
			s += fmt.Sprint(":", np)
		}
		proto := p["protocol"]
		if proto == nil {
			proto = "TCP"
		}
		ports = append(ports, fmt.Sprint(s, "/", proto))
	}
	if len(ports) == 0 {
		return "<none>"
	}
	return strings.Join(ports, ",")
}

func dataCount(o map[string]any) string {
	data, _ := o["data"].(map[string]any)
	binary, _ := o["binaryData"].(map[string]any)
	return fmt.Sprint(len(data) + len(binary))
}

func nodeStatus(o map[string]any) string {
	status := "Unknown"
	for _, c := range maps(o, "status", "conditions") {
		if c["type"] == "Ready" {
			status = "NotReady"
			if c["status"] == "True" {
				status = "Ready"
			}
		}
	}
	if cordoned, _, _ := unstructured.NestedBool(o, "spec", "unschedulable"); cordoned {
		status += ",SchedulingDisabled"
	}
	return status
}
