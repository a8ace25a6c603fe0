package main

import (
	"fmt"
	"strings"
)

// mark is a goal, the figure measured for it, and whether that meets the goal.
type mark struct {
	text string
	got  string
	met  bool
}

// marks compares the medians with the goals.
func (r *results) marks() []mark {
	largest := r.sizes[len(r.sizes)-1]
	replay := medians(largest.pairs, func(p pair) (float64, float64) { return told(p.kubewake), synced(p.stock) })
	memory := largest.of(anon)
	atLargest := thousands(largest.pods) + " pods"
	marks := []mark{
		r.atAnySize("first read under 10 ms after Open at any size", firstRead, 10, duration),
		{
			text: fmt.Sprintf("all pods told from the file in at most a quarter of client-go's time to "+
				"HasSynced, at %s", atLargest),
			got: fmt.Sprintf("%s to %s, ratio %s", duration(replay.kubewake), duration(replay.stock),
				ratio(replay.ratio)),
			met: replay.ratio <= 0.25,
		},
		r.atAnySize("HasSynced, confirmed by the server, at most 2.5 s after that at any size", confirmed, 2500,
			duration),
		r.atAnySize("under 10 KB of bodies on the wire when nothing has changed", bodies, 10e3, size),
		{
			text: fmt.Sprintf("anonymous memory in steady state at most a fifth of client-go's, at %s", atLargest),
			got: fmt.Sprintf("%s to %s, ratio %s (pages of files beside it: %s to %s)", size(memory.kubewake),
				size(memory.stock), ratio(memory.ratio),
				size(largest.of(file).kubewake), size(largest.of(file).stock)),
			met: memory.ratio <= 0.2,
		},
	}
	return append(marks, r.expiryMarks()...)
}

// expiryMarks are the marks of a restart of the API server.
func (r *results) expiryMarks() []mark {
	if len(r.expiry) == 0 {
		return nil
	}
	beside := func(text string, m both, most float64, u unit) mark {
		return mark{
			text: "after an API server restart, one pod in a hundred changed: " + text,
			got:  fmt.Sprintf("%s to %s, ratio %s", u(m.kubewake), u(m.stock), ratio(m.ratio)), met: m.ratio <= most,
		}
	}
	exact, want := true, r.expiry[0].kubewake.Marked+r.expiry[0].kubewake.Deleted
	for _, p := range r.expiry {
		exact = exact && p.kubewake.Updates == p.kubewake.Marked && p.kubewake.Deletes == p.kubewake.Deleted &&
			p.kubewake.Adds == 0
	}
	handled := r.ofExpiry(calls)
	return []mark{
		beside("bodies at most an eighth of client-go's", r.ofExpiry(liveBodies), 1.0/8, size),
		beside("bodies at most 1.1 times one compressed list", r.oneList(), 1.1, size),
		beside("peak of anonymous memory at most a quarter of client-go's", r.ofExpiry(livePeak), 0.25, size),
		beside("from the ERROR event to watching again no longer than client-go", r.ofExpiry(back), 1, duration),
		{
			text: "after it, handler calls are exactly the changed and the deleted",
			got: fmt.Sprintf("%s calls for %s changes, client-go's %s", count(handled.kubewake),
				count(float64(want)), count(handled.stock)), met: exact,
		},
	}
}

// atAnySize is a mark that a figure of kubewake's must keep below a limit in
// every single restart.
func (r *results) atAnySize(text string, figure func(report) float64, limit float64, u unit) mark {
	worst := 0.0
	var got []string
	for _, s := range r.sizes {
		most := 0.0
		for _, p := range s.pairs {
			most = max(most, figure(p.kubewake))
		}
		worst = max(worst, most)
		got = append(got, fmt.Sprintf("%s with %s pods (worst %s)", u(s.of(figure).kubewake), thousands(s.pods),
			u(most)))
	}
	return mark{text, strings.Join(got, ", "), worst < limit}
}
