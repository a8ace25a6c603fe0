package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// grownRun is a run on a machine, in which each figure is as many seconds or bytes as
// stated.
func grownRun(machine string, seconds int, sizes ...int) *measured.Growth {
	g := &measured.Growth{Machine: machine}
	d := time.Duration(seconds) * time.Second
	for _, n := range sizes {
		s := measured.Size{Pods: n, MeanJSON: 7800, Load: [2]string{"1.0 2.0", "3.0 4.0"},
			Lives:  map[kind][]measured.Lives{},
			Limits: []measured.Limits{{Put: d, Decode: d, List: d, ListBytes: int64(seconds)}}}
		for _, k := range restarted {
			s.Lives[k] = []measured.Lives{{Restart: report{Read: d, Told: d, Synced: d}}}
		}
		s.Lives[kubewake][0].First = &report{Synced: 2 * d, FileSize: 7_000_000}
		g.Sizes = append(g.Sizes, s)
	}
	last := &g.Sizes[len(sizes)-1]
	last.Reads = map[kind][]measured.Reads{kubewake: {{Get: 340 * time.Nanosecond, Namespace: 34 * time.Microsecond,
		All: d}}}
	last.Repair = map[kind][]measured.Repair{}
	for _, k := range peers {
		last.Repair[k] = []measured.Repair{{Back: d, Equal: d}}
	}
	return g
}

// TestGrowthText: a run takes over the sizes that an earlier one on the same machine has
// saved, and replaces its own. The tables have a column for each size.
func TestGrowthText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "growth.json")
	if err := grownRun("a", 9, 1_000, 100_000).Save(path); err != nil {
		t.Fatal(err)
	}
	all, err := measured.LoadGrowth(path)
	if err != nil {
		t.Fatal(err)
	}
	today := grownRun("a", 3, 1_000, 10_000)
	today.Sizes[1].Date = "2026-11-27"
	all.Add(today)
	text := growthText(all)
	for _, want := range []string{
		"Machine: a.\n1,000 pods of 7,800 bytes of JSON: 1 round; load average over one and five minutes 1.0 2.0 " +
			"before, 3.0 4.0 after.\n",
		"10,000 pods of 7,800 bytes of JSON: 1 round, on 2026-11-27; load",
		"- **missed**: a first sync of 1,000 pods no slower than with client-go: 6.00 s to 3.00 s, ratio 2.00\n",
		"| | program | 1,000 | 10,000 | 100,000 |\n|---|---|---:|---:|---:|\n",
		"| HasSynced | kubewake | 6.00 s | 6.00 s | 18.00 s |\n",
		"| HasSynced | client-go | 3.00 s | 3.00 s | 9.00 s |\n",
		"| HasSynced | kubewake, bookmark | 3.00 s | 3.00 s | 9.00 s |\n",
		"| file | kubewake | 7.0 MB | 7.0 MB | 7.0 MB |\n",
		"| get of any pod by its key | kubewake | | 340 ns | 340 ns |\n",
		"| list of one of twenty namespaces | kubewake | | 34 µs | 34 µs |\n",
		"| list of all pods | kubewake | | 3.00 s | 9.00 s |\n",
		"### Repair with 10,000 pods, 90 of which changed and 10 were deleted",
		"### Repair with 100,000 pods, 900 of which changed and 100 were deleted",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the tables lack %q:\n%s", want, text)
		}
	}
	all.Add(grownRun("b", 3, 1_000))
	if len(all.Sizes) != 1 {
		t.Errorf("figures of another machine stand beside these: %d sizes", len(all.Sizes))
	}
}
