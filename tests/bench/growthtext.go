package main

import (
	"fmt"
	"strings"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// grownFigure is a row of the tables for each program.
type grownFigure struct {
	name   string
	figure func(report) float64
	unit   unit
	files  bool // of programs that have a file
}

var firstFigures = []grownFigure{
	{"HasSynced", synced, duration, false},
	{"bodies received", bodies, size, false},
	{"anonymous memory 3 s after it", anon, size, false},
	{"its peak", peakAnon, size, false},
	{"processor time until then", processor, duration, false},
	{"file", fileSize, size, true},
}

var restartFigures = []grownFigure{
	{"first read", read, duration, false},
	{"handler told of all pods", told, duration, false},
	{"HasSynced", synced, duration, false},
	{"bodies received", bodies, size, false},
	{"anonymous memory 3 s after it", anon, size, false},
	{"its peak", peakAnon, size, false},
	{"pages of files in memory then", file, size, false},
	{"processor time until then", processor, duration, false},
	{"file", fileSize, size, true},
}

func fileSize(r report) float64 { return float64(r.FileSize) }

// growthText returns the tables of all figures.
func growthText(g *measured.Growth) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s.\n", g.Machine)
	for _, s := range g.Sizes {
		rounds := "medians of %d rounds"
		if len(s.Limits) == 1 {
			rounds = "%d round"
		}
		if s.Date != "" {
			rounds += ", on " + s.Date
		}
		fmt.Fprintf(&b, "%s pods of %s bytes of JSON: "+rounds+"; load average over one and five minutes %s "+
			"before, %s after.\n",
			thousands(s.Pods), thousands(s.MeanJSON), len(s.Limits), s.Load[0], s.Load[1])
	}
	growthMarks(&b, g)
	grownTable(&b, g, "First sync into nothing", peers, firstFigures, measured.Lives.Start)
	grownTable(&b, g, "Restart, by number of pods", restarted, restartFigures, func(l measured.Lives) report {
		return l.Restart
	})
	limitsTable(&b, g)
	readsTable(&b, g)
	for _, s := range g.Sizes {
		repairTable(&b, s)
	}
	return b.String()
}

// growthMarks says which marks of a first sync are met.
func growthMarks(b *strings.Builder, g *measured.Growth) {
	b.WriteString("\n### Marks of growth\n\n")
	for _, s := range g.Sizes {
		for _, peer := range []kind{stock, measured.Listed} {
			m := besides(s, peer, synced)
			verdict(b, m.ratio <= 1, "a first sync of %s pods no slower than with %s: %s to %s, ratio %s",
				thousands(s.Pods), peer, duration(m.kubewake), duration(m.stock), ratio(m.ratio))
		}
		m := besides(s, stock, peakAnon)
		verdict(b, m.ratio <= 0.25, "its peak of anonymous memory at most a quarter of client-go's: %s to %s, ratio %s",
			size(m.kubewake), size(m.stock), ratio(m.ratio))
	}
}

// besides has the medians of a figure of first syncs, kubewake's and a peer's, and the
// median of the rounds' ratios.
func besides(s measured.Size, peer kind, figure func(report) float64) both {
	type round struct{ kubewake, peer report }
	var rounds []round
	for i, l := range s.Lives[kubewake] {
		rounds = append(rounds, round{l.Start(), s.Lives[peer][i].Start()})
	}
	return medians(rounds, func(r round) (float64, float64) { return figure(r.kubewake), figure(r.peer) })
}

// grownHead begins a table with a column for each size.
func grownHead(b *strings.Builder, g *measured.Growth, title, columns string) {
	fmt.Fprintf(b, "\n### %s\n\n%s", title, columns)
	line := strings.Repeat("---|", strings.Count(columns, "|")-1)
	for _, s := range g.Sizes {
		fmt.Fprintf(b, " %s |", thousands(s.Pods))
		line += "---:|"
	}
	fmt.Fprintf(b, "\n|%s\n", line)
}

func grownTable(b *strings.Builder, g *measured.Growth, title string, programs []kind, figures []grownFigure,
	of func(measured.Lives) report) {
	grownHead(b, g, title, "| | program |")
	for _, f := range figures {
		for _, k := range programs {
			if f.files && !keeps(k) {
				continue
			}
			fmt.Fprintf(b, "| %s | %s |", f.name, k)
			for _, s := range g.Sizes {
				fmt.Fprintf(b, " %s |", f.unit(measured.Figure(s.Lives[k], func(l measured.Lives) float64 {
					return f.figure(of(l))
				})))
			}
			b.WriteString("\n")
		}
	}
}

func limitsTable(b *strings.Builder, g *measured.Growth) {
	grownHead(b, g, "Limits", "| |")
	for _, f := range []struct {
		name   string
		figure func(measured.Limits) float64
		unit   unit
	}{
		{"bbolt: put all objects in protobuf, 1,000 in each synced transaction", func(l measured.Limits) float64 {
			return ms(l.Put)
		}, duration},
		{"decode all objects from protobuf, on all cores", func(l measured.Limits) float64 {
			return ms(l.Decode)
		}, duration},
		{"one list without pages, compressed, read and not decoded", func(l measured.Limits) float64 {
			return ms(l.List)
		}, duration},
		{"its body", func(l measured.Limits) float64 { return float64(l.ListBytes) }, size},
	} {
		fmt.Fprintf(b, "| %s |", f.name)
		for _, s := range g.Sizes {
			fmt.Fprintf(b, " %s |", f.unit(measured.Figure(s.Limits, f.figure)))
		}
		b.WriteString("\n")
	}
}

// readsTable writes the times of reads. A size that an earlier run has measured may have
// none.
func readsTable(b *strings.Builder, g *measured.Growth) {
	grownHead(b, g, "Reads", "| | program |")
	for _, f := range []struct {
		name   string
		figure func(measured.Reads) float64
	}{
		{"get of any pod by its key", func(r measured.Reads) float64 { return ms(r.Get) }},
		{"list of one of twenty namespaces", func(r measured.Reads) float64 { return ms(r.Namespace) }},
		{"list of all pods", func(r measured.Reads) float64 { return ms(r.All) }},
	} {
		for _, k := range readers {
			fmt.Fprintf(b, "| %s | %s |", f.name, k)
			for _, s := range g.Sizes {
				if len(s.Reads[k]) == 0 {
					b.WriteString(" |")
					continue
				}
				fmt.Fprintf(b, " %s |", moment(measured.Figure(s.Reads[k], f.figure)))
			}
			b.WriteString("\n")
		}
	}
}

// repairTable writes the cost of a restart of the API server, if it was measured at that
// size.
func repairTable(b *strings.Builder, s measured.Size) {
	if len(s.Repair) == 0 {
		return
	}
	marked, deleted := touched(s.Pods)
	fmt.Fprintf(b, "\n### Repair with %s pods, %s of which changed and %s were deleted\n\n| |", thousands(s.Pods),
		thousands(marked), thousands(deleted))
	line := "|---|"
	for _, k := range peers {
		fmt.Fprintf(b, " %s |", k)
		line += "---:|"
	}
	b.WriteString("\n" + line + "\n")
	for _, f := range []struct {
		name   string
		figure func(measured.Repair) float64
		unit   unit
	}{
		{"from the ERROR event until watching again", func(r measured.Repair) float64 { return ms(r.Back) }, duration},
		{"until the handler is told of all changes", func(r measured.Repair) float64 { return ms(r.Equal) }, duration},
		{"handler calls", func(r measured.Repair) float64 { return float64(r.Adds + r.Updates + r.Deletes) }, count},
		{"bodies received", func(r measured.Repair) float64 { return float64(r.Traffic.Bodies) }, size},
		{"peak of anonymous memory", func(r measured.Repair) float64 { return float64(r.Memory.PeakAnon) }, size},
		{"processor time until 3 s after the last change", func(r measured.Repair) float64 {
			return ms(r.Processor)
		}, duration},
	} {
		fmt.Fprintf(b, "| %s |", f.name)
		for _, k := range peers {
			fmt.Fprintf(b, " %s |", f.unit(measured.Figure(s.Repair[k], f.figure)))
		}
		b.WriteString("\n")
	}
}
