package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// workPaces are rates at which a change's processor time is measured.
var workPaces = []struct {
	name string
	pace pace
}{
	{"200 events a second", pace{events: 4_000, each: 1, every: 5 * time.Millisecond}},
	{"1,000 events a second", pace{events: 10_000, each: 1, every: time.Millisecond}},
}

var workKinds = []struct {
	name string
	spec streamSpec
}{
	{"client-go", streamSpec{Kind: streamStock}},
	{"kubewake, a plain handler", streamSpec{Kind: streamPlain}},
	{durableName, streamSpec{Kind: streamDurable}},
	{"kubewake, three durable handlers", streamSpec{Kind: streamDurable3}},
}

// worked has the runs of all kinds, by name, at each of the workPaces.
type worked []map[string]paced

// work measures the whole processor time of a change in a program with default options,
// at rates at which commits are small.
func (b *streamBench) work(ctx context.Context, res *streamResults) error {
	for range b.pairs {
		var round worked
		for _, at := range workPaces {
			runs := map[string]paced{}
			for _, k := range workKinds {
				r, err := b.run(ctx, k.spec, b.anywhere, at.pace)
				if err != nil {
					return err
				}
				runs[k.name] = r
			}
			round = append(round, runs)
		}
		res.work = append(res.work, round)
	}
	return nil
}

// workOf returns the processor time of an event for a kind at a pace, beside client-go's,
// in microseconds.
func (r *streamResults) workOf(at int, kind string) both {
	return medians(r.work, func(w worked) (float64, float64) {
		return w[at][kind].each(), w[at]["client-go"].each()
	})
}

// each returns an event's processor time in microseconds.
func (p paced) each() float64 { return float64(p.Processor) / 1000 / float64(len(p.Told)) }

func (r *streamResults) workMarks(b *strings.Builder) {
	for at := range workPaces {
		if len(r.work) == 0 {
			return
		}
		for _, k := range workKinds[1:3] {
			m := r.workOf(at, k.name)
			verdict(b, m.ratio <= 1.5, "%s, %s: processor time of a change at most 1.5 times client-go's: %.0f to "+
				"%.0f µs, ratio %s",
				k.name, workPaces[at].name, m.kubewake, m.stock, ratio(m.ratio))
		}
	}
}

func (r *streamResults) workTable(b *strings.Builder) {
	if len(r.work) == 0 {
		return
	}
	b.WriteString("\n### Processor time of a change\n\nAll of the process's, from the first change to the last " +
		"handler call, with default options and without automatic compaction.\n\n| | | processor time an event | " +
		"to client-go | events a commit | written an event | median latency | p99 " +
		"|\n|---|---|---:|---:|---:|---:|---:|---:|\n")
	for at := range workPaces {
		for _, k := range workKinds {
			of := func(figure func(paced) float64) float64 {
				var v []float64
				for _, w := range r.work {
					v = append(v, figure(w[at][k.name]))
				}
				return median(v)
			}
			m := r.workOf(at, k.name)
			fmt.Fprintf(b, "| %s | %s | %.0f µs | %s | %.0f | %s | %s | %s |\n", workPaces[at].name, k.name,
				m.kubewake, ratio(m.ratio),
				of(paced.grouped), size(of(paced.written)),
				duration(of(func(p paced) float64 {
					return ms(p.quantile(0.5))
				})), duration(of(func(p paced) float64 { return ms(p.quantile(0.99)) })))
		}
	}
}
