package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

func pod(rv, uid string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: types.UID(uid), ResourceVersion: rv,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply",
				FieldsV1: metav1.NewFieldsV1("{}")}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "side", Image: "s:1"}, {Name: "app", Image: "a:1"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

// TestHistory: each version has its managers and changes, even across a delete and a
// new object of the same name, from a file that is open for reading only.
func TestHistory(t *testing.T) {
	path := t.TempDir() + "/h.db"
	db, err := boltstore.Open(path, boltstore.Options{Window: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "pods",
		Form: boltstore.FormTyped}, Example: &corev1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	j := fifo.New(s, nil)
	kubelet := func(p *corev1.Pod) {
		p.Spec.Containers[1].Image = "a:2"
		p.Labels = map[string]string{"x": "y"}
		p.Status.Phase = corev1.PodRunning
		p.ManagedFields = append(p.ManagedFields,
			metav1.ManagedFieldsEntry{Manager: "kubelet", Operation: "Update", Subresource: "status",
				FieldsV1: metav1.NewFieldsV1("{}")})
	}
	other := pod("2", "u9", nil)
	other.Name = "other"
	for _, err := range []error{
		j.Add(pod("1", "u1", nil)), j.Add(other), j.Update(pod("3", "u1", kubelet)), j.Delete(pod("4", "u1", kubelet)),
		j.Add(pod("5", "u2", nil)), j.Delete(cache.DeletedFinalStateUnknown{Key: "web/shop"}), j.Flush(t.Context()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = boltstore.Open(path, boltstore.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	view, err := db.View(states[0].Source)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for v, err := range Of(view, "web/shop") {
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %s %s %s %t", v.Type, v.ResourceVersion, v.UID, strings.Join(v.Managers, ","),
			v.FinalStateUnknown)
		for _, c := range v.Diff {
			line += fmt.Sprintf(" %s:%v>%v", c.Path, c.Old, c.New)
		}
		got = append(got, line)
	}
	want := []string{
		"Added 1 u1 kubectl/Apply false",
		`Updated 3 u1 kubelet/Update/status false .metadata.labels.x:<nil>>y .spec.containers[name="app"].image:a:1>a:2 .status.phase:<nil>>Running`,
		"Deleted 4 u1  false",
		"Added 5 u2 kubectl/Apply false",
		"Deleted 5 u2  true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for range Of(view, "web/shop") {
		break // may be left at any time
	}
}
