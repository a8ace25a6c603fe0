package measured

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// handler counts its calls, and knows when it has been told all pods and all marked ones.
type handler struct {
	s        Spec
	replayed chan struct{}
	changed  chan struct{}

	mu     sync.Mutex
	total  int // adds, ever
	told   time.Time
	marked map[string]bool
	calls  LiveReport
}

var _ cache.ResourceEventHandler = &handler{}

func (h *handler) OnAdd(obj any, _ bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls.Adds++
	h.note(obj)
	if h.total++; h.total == h.s.Pods {
		h.told = time.Now()
		close(h.replayed)
	}
}

func (h *handler) OnUpdate(_, obj any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls.Updates++
	h.note(obj)
}

func (h *handler) OnDelete(any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls.Deletes++
	if h.s.Mode == Live {
		h.calls.LastCall = time.Now()
		h.done()
	}
}

func (h *handler) note(obj any) {
	if h.s.Mode != Live {
		return
	}
	h.calls.LastCall = time.Now()
	pod := obj.(*corev1.Pod)
	key := pod.Namespace + "/" + pod.Name
	if pod.Annotations[MarkAnnotation] != h.s.Mark || h.marked[key] {
		return
	}
	h.marked[key] = true
	h.done()
}

// done notes the time when all changes have been told.
func (h *handler) done() {
	if len(h.marked) == h.s.Changes && h.calls.Deletes == h.s.Deletes {
		h.calls.Told = h.calls.LastCall
		close(h.changed)
	}
}

// reset starts the count of calls again.
func (h *handler) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = LiveReport{}
}

func (h *handler) report() LiveReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}
