package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestControllerDiffers: four lines, imports included, make a controller wake from a
// file.
func TestControllerDiffers(t *testing.T) {
	read := func(name string) []string {
		b, err := os.ReadFile(filepath.Join("controller", name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(b), "\n")
	}
	had := map[string]int{}
	for _, l := range read("stock") {
		had[l]++
	}
	var added []string
	for _, l := range read("kept") {
		if had[l]--; had[l] < 0 {
			added = append(added, l)
		}
	}
	if len(added) != 4 {
		t.Errorf("%d lines are new, want 4:\n%s", len(added), strings.Join(added, "\n"))
	}
}

func configMap(name, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
		Data: map[string]string{"data": data}}
}

func create(t *testing.T, sim *kubesim.Server, objects ...kubesim.Object) {
	t.Helper()
	for _, o := range objects {
		if err := sim.Create(o); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, sim *kubesim.Server, objects ...kubesim.Object) {
	t.Helper()
	for _, o := range objects {
		if err := sim.Delete(o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestController kills a controller in the middle of its work, and changes config maps
// while it is down. The stock one lists them all again, and never hears of those that
// were deleted. The one that keeps its cache reads no object again, and handles the
// deletes.
func TestController(t *testing.T) {
	const objects = 200
	var many []string // those that only stay
	for i := range objects {
		many = append(many, fmt.Sprintf("m%03d", i))
	}
	for name, want := range map[string]struct {
		gone  []string
		lists int
	}{
		"stock": {nil, 1},
		"kept":  {[]string{"gone web/first", "gone web/last"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, kubeconfig := simulator(t)
			create(t, sim, configMap("first", "1"), configMap("last", "1"), configMap("changed", "1"))
			for _, m := range many {
				create(t, sim, configMap(m, "1"))
			}
			dir, env := t.TempDir(), []string{"KUBECONFIG=" + kubeconfig}

			p := start(t, dir, env, built(t, name))
			p.says("found web/")
			if err := p.kill(); err != nil {
				t.Fatal(err)
			}
			done := p.said.all()

			remove(t, sim, configMap("first", ""), configMap("last", ""))
			create(t, sim, configMap("new", "1"))
			if err := sim.Update(configMap("changed", "2")); err != nil {
				t.Fatal(err)
			}
			sim.ResetRequests()
			p = start(t, dir, env, built(t, name))
			p.says(append([]string{"found web/new 1", "found web/changed 2"}, want.gone...)...)
			for _, m := range many {
				p.says("found web/" + m)
			}
			p.end()

			var gone []string
			for _, l := range p.said.all() {
				if strings.HasPrefix(l, "gone ") {
					gone = append(gone, l)
				}
			}
			slices.Sort(gone)
			if gone = slices.Compact(gone); !slices.Equal(gone, want.gone) {
				t.Errorf("of deletes it has %q, want %q", gone, want.gone)
			}
			lists := fullReads(sim)
			var sent []string
			for _, r := range sim.Requests() {
				sent = append(sent, fmt.Sprintf("%s %s?%s: %d objects", r.Verb, r.Path, r.Query.Encode(), r.Items))
			}
			if lists != want.lists {
				t.Errorf("it has read everything %d times, want %d:\n%s", lists, want.lists, strings.Join(sent, "\n"))
			}
			t.Logf("killed after %d of %d, it sent in its second life\n%s", len(done), objects+3,
				strings.Join(sent, "\n"))
		})
	}
}
