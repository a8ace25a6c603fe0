package measured

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Growth has the figures of programs at several sizes.
type Growth struct {
	Machine string
	Sizes   []Size
}

// Size has the figures for one number of pods, in the order of the rounds.
type Size struct {
	Pods, MeanJSON int
	Date           string `json:",omitempty"` // of the run; earlier ones have none
	// Load is the load average of the machine, over a minute and over five, before and
	// after. The measured programs contribute to it.
	Load   [2]string
	Lives  map[Kind][]Lives
	Limits []Limits
	Repair map[Kind][]Repair `json:",omitempty"` // earlier runs have it at their largest size
	Reads  map[Kind][]Reads  `json:",omitempty"` // earlier runs have none
}

// Lives are a first sync into an empty file, and a restart after it. For a program
// without a file the two are the same: its First is nil.
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

// Limits are times that no program of this kind can beat. Durations are wall-clock time.
type Limits struct {
	Put       time.Duration // all objects into bbolt, synced
	Decode    time.Duration // all objects, on all cores
	List      time.Duration // one list without pages, compressed, until its last byte
	ListBytes int64
}

// Repair is the cost to a running program of a restart of the API server, while one pod
// in a hundred changed.
type Repair struct {
	Back  time.Duration // from the ERROR event until watching again
	Equal time.Duration // from the restored link until all changes are told
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

// LoadGrowth reads a file that Save has written.
func LoadGrowth(path string) (*Growth, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g := &Growth{}
	return g, json.Unmarshal(data, g)
}

// Save writes all figures into a file.
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

// Add takes over another run's figures. Sizes that the run has not measured stay, if they
// are of the same machine.
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
