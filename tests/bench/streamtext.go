package main

import (
	"fmt"
	"strings"
)

// streamResults are all figures of the stream.
type streamResults struct {
	pairs, events int
	load          [2]string // load average before and after, as load returns it
	object        float64
	speed         []map[string]paced
	latency       [][3]paced
	work          []worked
	writes        []writes
	idle          []idleDay
}

// writes has the figures for one pace of events.
type writes struct {
	name            string
	packed, rollout bool
	paced
	limit float64
}

func (w writes) ratio() float64 { return w.written() / w.object }

func verdict(b *strings.Builder, met bool, format string, args ...any) {
	word := "missed"
	if met {
		word = "met"
	}
	fmt.Fprintf(b, "- **%s**: %s\n", word, fmt.Sprintf(format, args...))
}

func (r *streamResults) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s.\n", machine(""))
	fmt.Fprintf(&b, "%s pods of %s in protobuf on average; medians of %d rounds, unless said otherwise; load "+
		"average over one and five minutes %s before, %s after.\n\n### Marks of the stream\n\n",
		thousands(streamPods), size(r.object), r.pairs, r.load[0], r.load[1])
	r.marks(&b)
	r.speedTable(&b)
	r.latencyTable(&b)
	r.workTable(&b)
	r.writesTable(&b)
	r.idleTable(&b)
	return b.String()
}

func (r *streamResults) marks(b *strings.Builder) {
	if len(r.speed) > 0 {
		s := medians(r.speed, func(p map[string]paced) (float64, float64) {
			return p[durableName].rate(), p["client-go"].rate()
		})
		verdict(b, s.ratio >= 0.6, "durable events a second at least 0.6 of client-go's in memory: %s to %s, ratio %s",
			count(s.kubewake), count(s.stock), ratio(s.ratio))
	}
	if len(r.latency) > 0 {
		alone, sync := r.latencyOf(0, 0.5), r.fsyncOf(0)
		verdict(b, alone <= 3+sync, "an isolated event reaches its handler within 3 ms plus one fsync (%s in this "+
			"run): median %s", duration(sync), duration(alone))
		for i := 1; i < 3; i++ {
			p99 := r.latencyOf(i, 0.99)
			verdict(b, p99 < 25, "p99 under load below the window of 20 ms plus 5 ms: %s at %s events a second "+
				"(fsync %s)", duration(p99), perSecond(i), duration(r.fsyncOf(i)))
		}
	}
	r.workMarks(b)
	for _, w := range r.writes {
		verdict(b, w.ratio() <= w.limit, "%s, %s, %s: at most %.1f times the object's size written an event: %.2f",
			w.name, w.form(), w.where(), w.limit, w.ratio())
	}
	for _, d := range r.idle {
		verdict(b, d.written < 5e6, "an idle day of bookmarks below 5 MB written, %s: %s", d.form(),
			size(float64(d.written)))
	}
}

func (w writes) form() string {
	if w.packed {
		return "payloads packed"
	}
	return "payloads as they are"
}

func (w writes) where() string {
	if w.rollout {
		return "rollouts"
	}
	return "pods anywhere"
}

func perSecond(i int) string {
	at := latencyPaces[i]
	return thousands(int(float64(at.each) / at.every.Seconds()))
}

func (r *streamResults) latencyOf(i int, q float64) float64 {
	var v []float64
	for _, round := range r.latency {
		v = append(v, ms(round[i].quantile(q)))
	}
	return median(v)
}

func (r *streamResults) fsyncOf(i int) float64 {
	var v []float64
	for _, round := range r.latency {
		v = append(v, ms(round[i].fsync))
	}
	return median(v)
}

func (r *streamResults) speedTable(b *strings.Builder) {
	if len(r.speed) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### As fast as it goes: %s updates\n\n", thousands(r.events))
	b.WriteString("| | events a second | to client-go | processor time an event | allocated an event | written an " +
		"event | events a commit |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, k := range speedKinds {
		of := func(figure func(paced) float64) float64 {
			var v []float64
			for _, round := range r.speed {
				v = append(v, figure(round[k.name]))
			}
			return median(v)
		}
		to := medians(r.speed, func(p map[string]paced) (float64, float64) {
			return p[k.name].rate(), p["client-go"].rate()
		})
		fmt.Fprintf(b, "| %s | %s | %s | %.0f µs | %s | %s | %.0f |\n", k.name, count(to.kubewake), ratio(to.ratio),
			of(paced.each),
			size(of(func(p paced) float64 { return float64(p.Allocated) / float64(len(p.Told)) })),
			size(of(paced.written)), of(paced.grouped))
	}
}

func (r *streamResults) latencyTable(b *strings.Builder) {
	if len(r.latency) == 0 {
		return
	}
	b.WriteString("\n### From the server's write to the durable handler's call\n\nA commit syncs the file twice. " +
		"The window is 20 ms.\n\n| | median | p90 | p99 | worst | one fsync |\n|---|---:|---:|---:|---:|---:|\n")
	for i, name := range []string{"one event at a time", perSecond(1) + " events a second",
		perSecond(2) + " events a second"} {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", name, duration(r.latencyOf(i, 0.5)),
			duration(r.latencyOf(i, 0.9)), duration(r.latencyOf(i, 0.99)), duration(r.latencyOf(i, 1)),
			duration(r.fsyncOf(i)))
	}
}

func (r *streamResults) writesTable(b *strings.Builder) {
	if len(r.writes) == 0 {
		return
	}
	b.WriteString("\n### Written\n\nOne run each. Bytes given to write calls, with everything that rides along and " +
		"a flush at the end.\n\n| | payloads | updates of | events a commit | written an event | to the object's " +
		"size | processor time an event |\n|---|---|---|---:|---:|---:|---:|\n")
	for _, w := range r.writes {
		fmt.Fprintf(b, "| %s | %s | %s | %.0f | %s | %.2f | %.0f µs |\n", w.name,
			strings.TrimPrefix(w.form(), "payloads "), w.where(), w.grouped(), size(w.written()), w.ratio(),
			w.each())
	}
}

func (r *streamResults) idleTable(b *strings.Builder) {
	if len(r.idle) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### An idle day\n\nOne run each: %s bookmarks, one a minute, with time %d times as fast and "+
		"FlushInterval and the ten minutes of a bookmark shortened alike.\n\n| | written |\n|---|---:|\n",
		thousands(idleBookmarks), idleScale)
	for _, d := range r.idle {
		fmt.Fprintf(b, "| %s | %s |\n", d.form(), size(float64(d.written)))
	}
}
