package measured

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Growth is what was measured of programs at several sizes.
type Growth struct {
	Machine string
	Sizes   []Size
}

// Size is what was measured with a number of pods. All are in the order of the rounds.
type Size struct {
	Pods, MeanJSON int
	// Load is the load average of the machine, over a minute and over five, before and
	// after. The programs that are measured make a part of it.
	Load   [2]string
	Lives  map[Kind][]Lives
	Limits []Limits
	Repair map[Kind][]Repair `json:",omitempty"` // at the largest size of a run
}

// Lives are a first sync into nothing, and a restart after it. A program without a
// file has no restart that differs: its First is nil.
type Lives struct {
	First   *Report `json:",omitempty"`
	Restart Report
}

// Start is the program's first sync.
func (l Lives) Start() Report {
	if l.First != nil {
		return *l.First
	}
	return l.Restart
}

// Limits are what no program of this kind can be faster than. Durations are
// wall-clock time.
type Limits struct {
	Put       time.Duration // all objects into bbolt, synced
	Decode    time.Duration // all objects, on all cores
	List      time.Duration // one list without pages, compressed, until its last byte
	ListBytes int64
}

// Repair is what it cost a running program that the API server was restarted while
// one pod in a hundred changed.
type Repair struct {
	Back  time.Duration // from the ERROR event until watching again
	Equal time.Duration // from the link's mending until told of all changes
	LiveReport
}

// Figure returns the median of a figure.
func Figure[T any](of []T, figure func(T) float64) float64 {
	var all []float64
	for _, v := range of {
		all = append(all, figure(v))
	}
	return Median(all)
}

// Median returns the median of at least one value.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// LoadGrowth reads what Save has written.
func LoadGrowth(path string) (*Growth, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g := &Growth{}
	return g, json.Unmarshal(data, g)
}

// Save writes all that was measured into a file.
func (g *Growth) Save(path string) error {
	data, err := json.MarshalIndent(g, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Add takes over another run's sizes. What it has not measured stays, if it is of the
// same machine.
func (g *Growth) Add(run *Growth) {
	if g.Machine != run.Machine {
		*g = Growth{Machine: run.Machine}
	}
	for _, s := range run.Sizes {
		g.Sizes = slices.DeleteFunc(g.Sizes, func(old Size) bool { return old.Pods == s.Pods })
		g.Sizes = append(g.Sizes, s)
	}
	slices.SortFunc(g.Sizes, func(a, b Size) int { return a.Pods - b.Pods })
}
