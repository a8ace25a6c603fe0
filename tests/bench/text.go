package main

import (
	"fmt"
	"os"
	"strings"
)

// markers is the name in the markers around a set of tables.
type markers string

const (
	benchMarkers  markers = "bench"
	streamMarkers markers = "stream"
	idleMarkers   markers = "idle"
	apiMarkers    markers = "api"
	growthMarkers markers = "growth"
)

// insert puts text between the markers of a file and keeps the rest.
func insert(path, text string, m markers) error {
	beginMarker, endMarker := fmt.Sprintf("<!-- %s:begin -->", m), fmt.Sprintf("<!-- %s:end -->", m)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(data), beginMarker)
	_, tail, ok2 := strings.Cut(rest, endMarker)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %s and %s", path, beginMarker, endMarker)
	}
	return os.WriteFile(path, []byte(head+beginMarker+"\n"+text+endMarker+tail), 0o644)
}

// markdown returns all figures as Markdown.
func (r *results) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s.\n", r.machine)
	fmt.Fprintf(&b, "Medians of %d pairs; the ratio is the median of the pairs' ratios.\n", r.pairs)
	b.WriteString("\n### Marks\n\n")
	for _, m := range r.marks() {
		verdict := "missed"
		if m.met {
			verdict = "met"
		}
		fmt.Fprintf(&b, "- **%s**: %s: %s\n", verdict, m.text, m.got)
	}
	for _, s := range r.sizes {
		s.table(&b)
	}
	r.expiryTable(&b)
	return b.String()
}

// unit formats a figure.
type unit func(float64) string

func duration(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.1f ms", v)
	case v < 1000:
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.2f s", v/1000)
}

// moment is a duration that may be less than a millisecond.
func moment(v float64) string {
	switch {
	case v < 0.001:
		return fmt.Sprintf("%.0f ns", v*1e6)
	case v < 0.01:
		return fmt.Sprintf("%.1f µs", v*1e3)
	case v < 1:
		return fmt.Sprintf("%.0f µs", v*1e3)
	}
	return duration(v)
}

func size(v float64) string {
	switch {
	case v < 1e3:
		return fmt.Sprintf("%.0f B", v)
	case v < 100e3:
		return fmt.Sprintf("%.1f KB", v/1e3)
	case v < 1e6:
		return fmt.Sprintf("%.0f KB", v/1e3)
	}
	return fmt.Sprintf("%.1f MB", v/1e6)
}

func count(v float64) string { return thousands(int(v + 0.5)) }

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func ratio(v float64) string {
	if v < 0.01 {
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// syncedName is the name of a row to which another one refers.
const syncedName = "HasSynced"

const tableHead = "\n| | kubewake | client-go | ratio |\n|---|---:|---:|---:|\n"

func row(b *strings.Builder, name string, f both, u unit) {
	fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, u(f.kubewake), u(f.stock), ratio(f.ratio))
}

func (r sizeResult) table(b *strings.Builder) {
	fmt.Fprintf(b, "\n### Restart with %s pods\n\n", thousands(r.pods))
	fmt.Fprintf(b, "A pod is %s bytes of JSON on average. ", thousands(r.meanJSON))
	fmt.Fprintf(b, "The first sync into an empty file took %s; the file is then %s. ", duration(synced(r.fill)),
		size(float64(r.fill.FileSize)))
	fmt.Fprintf(b, "A program with a client and no informer has %s of anonymous memory.\n", size(anon(r.idle)))
	b.WriteString(tableHead)
	fmt.Fprintf(b, "| Open | %s | – | |\n", duration(r.of(opened).kubewake))
	fmt.Fprintf(b, "| first read after Open | %s | – | |\n", duration(r.of(firstRead).kubewake))
	for _, f := range []struct {
		name   string
		figure func(report) float64
		unit   unit
	}{
		{"first read, from the start of the process", read, duration},
		{"handler told of all pods", told, duration},
		{syncedName, synced, duration},
		{"requests", requests, count},
		{"bodies received", bodies, size},
		{"bytes on the connection, both ways", conns, size},
		{"processor time until 3 s after the sync", processor, duration},
		{"anonymous memory 3 s after the sync", anon, size},
		{"pages of files in memory", file, size},
		{"live heap after a collection", heap, size},
		{"peak of anonymous memory", peakAnon, size},
		{"peak of all memory", peak, size},
	} {
		row(b, f.name, r.of(f.figure), f.unit)
		if f.name == syncedName {
			fmt.Fprintf(b, "| %s, if nothing at all was written since | %s | | |\n", syncedName,
				duration(synced(r.still)))
		}
	}
}

func (r *results) expiryTable(b *strings.Builder) {
	if len(r.expiry) == 0 {
		return
	}
	last := r.sizes[len(r.sizes)-1]
	fmt.Fprintf(b, "\n### The API server restarts under a running program with %s pods, %s of which changed and %s "+
		"were deleted\n\n",
		thousands(last.pods), thousands(r.expiry[0].kubewake.Marked), thousands(r.expiry[0].kubewake.Deleted))
	b.WriteString("One list of all of them without pages, compressed, has " + size(r.oneList().stock) + ".\n")
	b.WriteString("\n| | kubewake | kubewake, pages decoded | client-go | ratio |\n|---|---:|---:|---:|---:|\n")
	for _, f := range []struct {
		name   string
		figure func(expiryReport) float64
		unit   unit
	}{
		{"from the ERROR event until watching again", back, duration},
		{"until the handler is told of all changes", equal, duration},
		{"until the handler's last call", quiet, duration},
		{"handler calls", calls, count},
		{"requests", liveRequests, count},
		{"bodies received", liveBodies, size},
		{"bytes on the connection, both ways", liveConns, size},
		{"peak of anonymous memory", livePeak, size},
		{"processor time until 3 s after the last change", liveProcessor, duration},
		{"memory allocated", allocated, size},
	} {
		m := r.ofExpiry(f.figure)
		decoded := medians(r.expiry, func(p expiryRound) (float64, float64) { return f.figure(p.decoded), 1 })
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", f.name, f.unit(m.kubewake), f.unit(decoded.kubewake),
			f.unit(m.stock), ratio(m.ratio))
	}
}
