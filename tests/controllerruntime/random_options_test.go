package controllerruntime

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Aspects of a cache's options, each of which is chosen apart.
const (
	chooseReads = iota
	chooseSelectors
	chooseNamespaces
	chooseTransforms
	chooseObjects // the first of the kinds
	aspects       = chooseObjects + 4
)

// choose chooses the options of the next life: in the first one all of them, later none,
// some, or all.
func (p *program) choose() {
	first := p.choices[0] == 0
	all := first || p.r.IntN(8) == 0
	some := p.r.IntN(2) == 0
	for i := range p.choices {
		if all || some && p.r.IntN(4) == 0 {
			p.choices[i] = 1 + p.r.Uint64N(1<<40)
		}
	}
}

func (p *program) chosen(aspect int) *rand.Rand { return rand.New(rand.NewPCG(p.choices[aspect], 22)) }

// transformVersion is another one in each life that may have another transform for a list.
func (p *program) transformVersion() string {
	if p.choices[chooseTransforms]%2 == 0 {
		return fmt.Sprint(p.choices[chooseTransforms])
	}
	return fmt.Sprint(p.choices[chooseTransforms], p.choices[chooseNamespaces], p.choices[chooseObjects:])
}

// transform is the one at a place in the options: the same everywhere, or any.
func (p *program) transform(place string) func(any) (any, error) {
	if p.choices[chooseTransforms]%2 == 0 {
		place = ""
	}
	h := fnv.New64()
	fmt.Fprint(h, place)
	return randomTransform(rand.New(rand.NewPCG(p.choices[chooseTransforms], h.Sum64())))
}

// options are those of the life's choices.
func (p *program) options() cache.Options {
	o := cache.Options{Scheme: scheme.Scheme, Mapper: p.mapper, ByObject: map[client.Object]cache.ByObject{}}
	r := p.chosen(chooseReads)
	o.ReaderFailOnMissingInformer = r.IntN(3) == 0
	if r.IntN(3) == 0 {
		o.DefaultUnsafeDisableDeepCopy = new(true)
	}
	if r.IntN(4) == 0 {
		o.SyncPeriod = new(time.Duration(2+r.IntN(20)) * time.Second)
	}
	r = p.chosen(chooseSelectors)
	if r.IntN(4) == 0 {
		o.DefaultLabelSelector = randomLabels(r)
	}
	if r.IntN(6) == 0 {
		o.DefaultFieldSelector = fields.OneTermNotEqualSelector("metadata.name", "o1")
	}
	o.DefaultTransform = p.transform("")
	r = p.chosen(chooseNamespaces)
	p.several = r.IntN(2) == 0
	if p.several {
		o.DefaultNamespaces = p.configs(r, "")
	}
	for i, k := range []client.Object{&corev1.ConfigMap{}, &corev1.Pod{}, anything(widgets), &corev1.Node{}} {
		r := p.chosen(chooseObjects + i)
		if r.IntN(4) > 0 {
			continue
		}
		place := fmt.Sprint(i)
		b := cache.ByObject{Transform: p.transform(place)}
		_, cluster := k.(*corev1.Node)
		if r.IntN(2) == 0 {
			b.Label = randomLabels(r)
		}
		if r.IntN(3) == 0 {
			b.UnsafeDisableDeepCopy = new(r.IntN(2) == 0)
		}
		if r.IntN(3) == 0 {
			b.Field = fields.OneTermEqualSelector("metadata.name", "o2")
			if _, ok := k.(*corev1.Pod); ok {
				b.Field = fields.OneTermEqualSelector("spec.nodeName", "node1")
			} else if !cluster && r.IntN(2) == 0 {
				b.Field = fields.OneTermEqualSelector("metadata.namespace", "b")
			}
		}
		if !cluster && r.IntN(3) == 0 {
			b.Namespaces = p.configs(r, place)
			p.several = true
		}
		o.ByObject[k] = b
	}
	p.failing = o.ReaderFailOnMissingInformer
	return o
}

func (p *program) configs(r *rand.Rand, place string) map[string]cache.Config {
	all := map[string]cache.Config{}
	for _, ns := range append([]string{cache.AllNamespaces}, randomNamespaces...) {
		if r.IntN(2) == 0 {
			continue
		}
		c := cache.Config{Transform: p.transform(place + "/" + ns)}
		if r.IntN(3) == 0 {
			c.LabelSelector = randomLabels(r)
		}
		all[ns] = c
	}
	if len(all) == 0 {
		all["b"] = cache.Config{}
	}
	return all
}

func randomLabels(r *rand.Rand) labels.Selector {
	text := []string{"app=x", "app in (x,y)", "app!=z", "!app", "app", "app notin (y,x)"}[r.IntN(6)]
	s, err := labels.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// randomTransform returns a transform that does the same to each form, or nil.
func randomTransform(r *rand.Rand) func(any) (any, error) {
	switch r.IntN(6) {
	case 0:
		return cache.TransformStripManagedFields()
	case 1:
		return func(o any) (any, error) {
			o.(client.Object).SetAnnotations(map[string]string{"seen": "yes"})
			return o, nil
		}
	case 2:
		return func(o any) (any, error) {
			if l := o.(client.Object).GetLabels(); l["app"] == "y" {
				l["app"] = "x" // selectors of readers see this one
				o.(client.Object).SetLabels(l)
			}
			return o, nil
		}
	}
	return nil
}
