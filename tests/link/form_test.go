package link

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// gadgets have a schema, of which the default of spec.color changes.
var gadgets = schema.GroupVersionResource{Group: "forms.example.com", Version: "v1", Resource: "gadgets"}

func gadgetVersions(color string) []any {
	colour := map[string]any{"type": "string"}
	if color != "" {
		colour["default"] = color
	}
	return []any{map[string]any{"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"data": map[string]any{
				"type": "object", "properties": map[string]any{"data": map[string]any{"type": "string"},
					"color": colour},
			}},
		}}}}
}

// installGadgets makes the server serve gadgets, without a default.
func (w *world) installGadgets() {
	w.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": gadgets.GroupResource().String()},
		"spec": map[string]any{
			"group": gadgets.Group, "scope": "Namespaced", "versions": gadgetVersions(""),
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget",
				"listKind": "GadgetList"},
		},
	}}
	if _, err := w.direct.Resource(crds).Create(w.Context(), crd, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	w.until(time.Minute, func() bool {
		_, err := w.direct.Resource(gadgets).List(w.Context(), metav1.ListOptions{})
		return err == nil
	}, func() string { return "gadgets are not served" })
}

// recolor changes the default.
func (w *world) recolor(color string) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": gadgetVersions(color)}})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.direct.Resource(crds).Patch(w.Context(), gadgets.GroupResource().String(), types.MergePatchType,
		patch, metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// served waits until the server gives the gadget that color.
func (w *world) served(name, color string) {
	w.Helper()
	w.until(time.Minute, func() bool {
		o, err := w.direct.Resource(gadgets).Namespace(w.ns).Get(w.Context(), name, metav1.GetOptions{})
		return err == nil && colorOf(o) == color
	}, func() string { return "the new default is not served" })
}

func colorOf(o any) string {
	color, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, "data", "color")
	return color
}

// expectColor waits until all gadgets in the file but g1 have that color: a write
// stores the default of its time.
func (m *mirror) expectColor(color string) {
	m.Helper()
	m.until(time.Minute, func() bool {
		for _, o := range m.inf.GetStore().List() {
			if o.(*unstructured.Unstructured).GetName() != "g1" && colorOf(o) != color {
				return false
			}
		}
		return true
	}, func() string {
		var got []string
		for _, o := range m.inf.GetStore().List() {
			got = append(got, colorOf(o))
		}
		return fmt.Sprintf("not all are %s but %q; %s, relists %v, sign %s", color, got, m.inf.State(),
			m.inf.State().Relists, m.inf.GetIndexer().(*boltstore.Claimed).Upstream.Facts().ServedForm)
	})
}

// reformed: new defaults change the content of custom resources without a write. The
// server ends the watch when it serves the new schema. It answers a watch from a version
// before the change with 410.
func reformed(w *world) {
	w.installGadgets()
	for i := range 3 {
		w.create(gadgets, fmt.Sprint("g", i), "x")
	}
	path := filepath.Join(w.TempDir(), "forms.db")
	m := w.mirrorAt(path, gadgets, apiserver.Admin, informer.Options{})
	m.phase(reflector.PhaseLive)
	m.expect("g", "+g0", "+g1", "+g2")
	m.end()
	w.recolor("blue")
	w.served("g0", "blue")
	m = w.mirrorAt(path, gadgets, apiserver.Admin, informer.Options{})
	m.expectColor("blue")
	m.until(time.Minute, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Contains(m.told, "~g0") && slices.Contains(m.told, "~g1") && slices.Contains(m.told, "~g2")
	}, func() string { return fmt.Sprintf("told %q", m.told) })
	m.phase(reflector.PhaseLive)
	w.recolor("red")
	m.expectColor("red")
	w.Log("relists:", m.inf.State().Relists)
}
