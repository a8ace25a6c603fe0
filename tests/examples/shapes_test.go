package examples

import (
	"testing"
)

// TestShapes: each shape of program reads over a file what it reads with client-go alone, also
// after it was killed, and started again by another setting.
func TestShapes(t *testing.T) {
	for shape, want := range map[string][3]string{
		"policy":  {"has [web/a1 web/a2]", "has [web/b1 web/b2]", "has [web/b2]"},
		"wrapped": {"has [web/a1 web/a2 web/b1]", "has [web/a2 web/b1 web/b2]", "has [web/a2 web/b2]"},
	} {
		t.Run(shape, func(t *testing.T) {
			sim, kubeconfig := simulator(t)
			create(t, sim, configMap("a1", "a"), configMap("a2", "a"), configMap("b1", "b"))
			dir := t.TempDir()
			both := func(zone string) (stock, kept *program) {
				env := []string{"KUBECONFIG=" + kubeconfig}
				args := []string{"-shape", shape, "-zone", zone}
				stock = start(t, dir, env, built(t, "shapes"), args...)
				return stock, start(t, dir, env, built(t, "shapes"), append(args, "-db", "cache.db")...)
			}
			stock, kept := both("a")
			for _, p := range []*program{stock, kept} {
				p.says(want[0])
				if err := p.kill(); err != nil {
					t.Fatal(err)
				}
			}
			remove(t, sim, configMap("a1", ""))
			create(t, sim, configMap("b2", "b"))
			stock, kept = both("b")
			stock.says(want[1])
			kept.says(want[1])
			remove(t, sim, configMap("b1", ""))
			stock.says(want[2])
			kept.says(want[2])
			stock.end()
			kept.end()
		})
	}
}
