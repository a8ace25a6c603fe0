package informer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// user is a random program that uses an informer. Its steps depend on the seed alone,
// so that client-go's informer and ours are used in the same way.
type user struct {
	*side
	rnd      *rand.Rand
	n        int // steps so far
	resyncs  bool
	objects  map[string]types.UID // that the server has
	uids     int
	handlers []*userHandler
	indices  int
	running  bool
	over     bool
	touched  map[string]bool // while changes are lost
}

type userHandler struct {
	*tableHandler
	reg     cache.ResourceEventHandlerRegistration
	release chan struct{} // closed when its calls may return
	removed bool
	stalled bool // until now
}

// TestAsClientGoAtRandom: random programs see and are told the same by client-go's
// informer and by ours, except for the differences in docs/differences.md.
func TestAsClientGoAtRandom(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // one of them sleeps until a time outside the bubble
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	warmUp(t)
	first, programs := uint64(1), 20
	if n, err := strconv.Atoi(os.Getenv("KUBEWAKE_PROGRAMS")); err == nil {
		programs = n
	}
	if n, err := strconv.ParseUint(os.Getenv("KUBEWAKE_SEED"), 10, 64); err == nil {
		first = n
	}
	for seed := first; seed < first+uint64(programs); seed++ {
		rnd := rand.New(rand.NewPCG(seed, 0))
		sc := scenario{name: fmt.Sprint("seed ", seed)}
		if rnd.IntN(2) == 0 {
			sc.o.ResyncPeriod = time.Duration(rnd.IntN(5)+2) * 700 * time.Millisecond
		}
		if rnd.IntN(3) == 0 {
			sc.o.Transform = func(o any) (any, error) {
				o.(*corev1.ConfigMap).Labels = map[string]string{"transformed": "yes"}
				return o, nil
			}
		}
		sc.run = func(s *side) {
			p := &user{side: s, rnd: rand.New(rand.NewPCG(seed, 1)), resyncs: sc.o.ResyncPeriod > 0,
				objects: map[string]types.UID{}}
			p.objects["default/first"] = "first" // version 0 is none
			p.src.Add(p.object("default/first"))
			for p.n = range 60 {
				p.step()
			}
			p.look("end")
			for _, h := range p.handlers {
				h.free()
			}
			p.settle()
			p.look("free")
			p.stop()
			p.look("stopped")
		}
		t.Run(sc.name, func(t *testing.T) {
			clientGo, file := sc.notes(t, false), sc.notes(t, true)
			for i := range max(len(clientGo), len(file)) {
				if i >= len(clientGo) || i >= len(file) || clientGo[i] != file[i] {
					for j := max(0, i-4); j < min(len(clientGo), len(file), i+1); j++ {
						t.Logf("%v\n%v", clientGo[j], file[j])
					}
					t.Fatalf("note %d of %d and %d", i, len(clientGo), len(file))
				}
			}
		})
	}
}

func (h *userHandler) free() {
	if h.release != nil {
		close(h.release)
		h.release, h.stalled = nil, true
	}
}

func (h *userHandler) say(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, s)
}

func (h *userHandler) shown(obj any) string {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return "unknown " + d.Key + " " + h.shown(d.Obj)
	}
	o := obj.(*corev1.ConfigMap)
	return fmt.Sprint(o.Namespace, "/", o.Name, "@", o.ResourceVersion, "u", o.UID, o.Labels, o.Data)
}

func (h *userHandler) OnAdd(obj any, initial bool) {
	h.call(strings.TrimSpace("add " + h.shown(obj) + " " + map[bool]string{true: "initial"}[initial]))
}
func (h *userHandler) OnUpdate(old, obj any) {
	h.call("update " + h.shown(old) + " => " + h.shown(obj))
}
func (h *userHandler) OnDelete(obj any) { h.call("delete " + h.shown(obj)) }

var (
	deleted = regexp.MustCompile(`^delete (unknown \S+ )?(\S+)@.*$`)
	updated = regexp.MustCompile(`^update (.*) => (.*)$`)
)

func unchanged(call string) bool {
	m := updated.FindStringSubmatch(call)
	return m != nil && m[1] == m[2]
}

// look notes everything visible. The changes of a list or a resync are told in no certain
// order.
func (p *user) look(when string) {
	for _, h := range p.handlers {
		if h.release != nil {
			continue // it is told objects in no certain order
		}
		told := h.take()
		if i := slices.Index(told, "removes itself <nil>"); i >= 0 {
			told = told[:i] // client-go may make one more call
			if strings.Contains(when, "after the") {
				told = nil // it removed itself at any call
			}
		}
		for i, call := range told {
			if strings.Contains(call, "delete ") {
				// whether the delete is seen or missed is a matter of time
				told[i] = deleted.ReplaceAllString(call, "delete $2")
			}
		}
		if h.stalled && h.removed {
			told = nil // the call under way was for any object
		}
		if h.stalled {
			slices.Sort(told)
			told = slices.DeleteFunc(told, unchanged)
			h.stalled = false
		}
		if !p.resyncs {
			told = slices.DeleteFunc(told, unchanged)
		}
		if strings.Contains(when, "after the") || p.resyncs {
			slices.Sort(told)
		}
		if strings.Contains(when, "after the") {
			told = slices.Compact(slices.DeleteFunc(told, unchanged))
		}
		p.note(when+": "+h.name+" is told", told)
		p.registered(when+": "+h.name, h.reg)
	}
	p.note(when+": synced", p.inf.HasSynced(), p.inf.IsStopped())
	if p.running && p.inf.HasSynced() {
		p.note(when+": version", p.inf.LastSyncResourceVersion())
	}
	p.keys(when)
}
