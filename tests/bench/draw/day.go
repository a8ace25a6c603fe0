package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// drawDay draws the series that TestDayOfEdgeLife writes: the bytes that kubewake and
// client-go have received so far, against the hours of the day.
func drawDay(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	if len(rows) < 3 {
		return fmt.Errorf("%s has no series", path)
	}
	var ours, theirs plotter.XYs
	for _, row := range rows[1:] {
		var v [3]float64
		for i := range v {
			var bad error
			v[i], bad = strconv.ParseFloat(row[i], 64)
			err = errors.Join(err, bad)
		}
		ours = append(ours, plotter.XY{X: v[0] / 3600, Y: v[1]})
		theirs = append(theirs, plotter.XY{X: v[0] / 3600, Y: v[2]})
	}
	if err != nil {
		return err
	}
	p := newPlot("A day of edge life: response bodies received so far")
	p.X.Label.Text, p.Y.Label.Text = "hours", "bytes"
	p.X.Tick.Marker = steps(4, number)
	p.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		return steps(nice(high/6), bytesOf).Ticks(low, high)
	})
	p.X.Min, p.Y.Min = 0, 0
	last := func(name measured.Kind, s plotter.XYs) string {
		return fmt.Sprintf("%s: %.1f MB in all", name, s[len(s)-1].Y/1e6)
	}
	if err := line(p, last(measured.Kubewake, ours), ours, styles[0], false); err != nil {
		return err
	}
	if err := line(p, last(measured.Stock, theirs), theirs, styles[2], false); err != nil {
		return err
	}
	return save(p, filepath.Join(filepath.Dir(path), "edge-day.svg"))
}

// steps are ticks at multiples of a step.
func steps(step float64, label func(float64) string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		for v := 0.0; v <= high; v += step {
			if v >= low {
				ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
			}
		}
		return ticks
	})
}

// nice is the next number above v that is one, two or five times a power of ten.
func nice(v float64) float64 {
	for step := 1.0; ; step *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if n*step >= v {
				return n * step
			}
		}
	}
}
