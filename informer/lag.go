package informer

import (
	"slices"
	"strings"
)

// Lag is how far a handler is behind the file.
type Lag struct {
	// Handler is a durable handler's name. "" is the plain handler that is furthest
	// behind, if there is any.
	Handler string
	// Entries counts the journal's newest entries. For a plain handler they begin behind the
	// last one from which it has returned. For a durable one they begin behind the mark in
	// the file, up to which it needs none; later ones may be acknowledged already.
	Entries uint64
	// Unacknowledged counts the keys that a durable handler has in memory and has not
	// acknowledged. Failing counts those among them whose last event it has refused.
	// Parked counts its parked keys in the file.
	Unacknowledged, Failing, Parked int
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
		l := d.Lag()
		all = append(all, Lag{d.Name(), last - min(l.Mark, last), l.Keys, l.Failing, int(l.Parked)})
	}
	slices.SortFunc(all[first:], func(a, b Lag) int { return strings.Compare(a.Handler, b.Handler) })
	return all
}
