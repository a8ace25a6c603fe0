package informer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Lag is how far a handler is behind the file.
type Lag struct {
	// Handler is a durable handler's name. "" is the plain handler that is furthest
	// behind, if there is any. For it, Entries counts the journal's entries behind the last
	// one from which it has returned. The other fields are of durable handlers.
	Handler string
	Entries uint64
	// Pending counts the keys that the handler has not acknowledged, with those that are
	// still to be added after a Reset. Behind says that keys are still to be added: a
	// Reset is owed, or objects are being added after one.
	Pending uint64
	Behind  bool
	// Since is when the oldest key that the handler has in hand became pending, zero if
	// there is none, and Age is how long ago that is. Older keys may wait in the file
	// while the handler works through what was pending at its start.
	Since time.Time
	Age   time.Duration
	// Failing counts the keys that were refused since they were last acknowledged, Failures
	// the refused calls since the handler was added.
	Failing  int
	Failures uint64
}

// String says what a durable handler has not done.
func (l Lag) String() string {
	s := fmt.Sprintf("durable handler %q: %d keys pending", l.Handler, l.Pending)
	if l.Pending == 1 {
		s = fmt.Sprintf("durable handler %q: 1 key pending", l.Handler)
	}
	if !l.Since.IsZero() {
		s += ", the oldest for " + duration.HumanDuration(l.Age)
	}
	if l.Failing > 0 {
		s += fmt.Sprintf(", %d failing", l.Failing)
	}
	return s
}

// Lags returns how far the handlers are behind, plain ones first, then durable ones by
// name. It does not read the file.
func (inf *Informer) Lags() (all []Lag) {
	last := inf.store.State().Seq
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if len(inf.listeners) > 0 {
		told := last
		for l := range inf.listeners {
			told = min(told, l.cursor.Load())
		}
		all = append(all, Lag{Entries: last - told})
	}
	first := len(all)
	for d := range inf.durables {
		all = append(all, d.lag())
	}
	slices.SortFunc(all[first:], func(a, b Lag) int { return strings.Compare(a.Handler, b.Handler) })
	return all
}
