package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// picture shows a figure of restarts against the number of pods.
type picture struct {
	file, title, axis string
	figure            func(measured.Report) float64
	label             func(float64) string
	// limit is the name of a limit that is shown, too, "" for none; of is its figure.
	limit string
	of    func(measured.Limits) float64
}

var pictures = []picture{
	{"restart-told.svg", "Restart: process start until the handler knows all pods", "time",
		func(r measured.Report) float64 { return r.Told.Seconds() }, seconds,
		"decode all, all cores", func(l measured.Limits) float64 { return l.Decode.Seconds() }},
	{"restart-synced.svg", "Restart: process start until HasSynced", "time",
		func(r measured.Report) float64 { return r.Synced.Seconds() }, seconds,
		"read one compressed list", func(l measured.Limits) float64 { return l.List.Seconds() }},
	{"restart-bytes.svg", "Restart: response bodies received until 3 s after the sync", "bytes",
		func(r measured.Report) float64 { return float64(r.Traffic.Bodies) }, bytesOf,
		"one compressed list", func(l measured.Limits) float64 { return float64(l.ListBytes) }},
	{"memory.svg", "Anonymous memory 3 s after a restart's sync", "bytes",
		func(r measured.Report) float64 { return float64(r.Memory.Anon) }, bytesOf, "", nil},
}

// lines are the programs of the pictures, in the order of their styles.
var lines = []measured.Kind{measured.Kubewake, measured.Bookmark, measured.Stock, measured.Listed, measured.Manager,
	measured.SQLite}

func drawGrowth(path string) error {
	g, err := measured.LoadGrowth(path)
	if err != nil {
		return err
	}
	for _, pic := range pictures {
		p := newPlot(pic.title)
		p.X.Label.Text, p.Y.Label.Text = "pods", pic.axis
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker, p.Y.Tick.Marker = decades(number), decades(pic.label)
		low, high := math.Inf(1), 0.0
		for i, k := range lines {
			var points plotter.XYs
			for _, s := range g.Sizes {
				if len(s.Lives[k]) == 0 {
					continue
				}
				v := measured.Figure(s.Lives[k], func(l measured.Lives) float64 { return pic.figure(l.Restart) })
				points = append(points, plotter.XY{X: float64(s.Pods), Y: v})
				low, high = min(low, v), max(high, v)
			}
			if len(points) == 0 {
				continue
			}
			if err := line(p, string(k), points, styles[i], true); err != nil {
				return err
			}
		}
		if pic.limit != "" {
			var points plotter.XYs
			for _, s := range g.Sizes {
				v := measured.Figure(s.Limits, pic.of)
				points = append(points, plotter.XY{X: float64(s.Pods), Y: v})
				low, high = min(low, v), max(high, v)
			}
			if err := line(p, "limit: "+pic.limit, points, limitStyle, false); err != nil {
				return err
			}
		}
		if low > high {
			return fmt.Errorf("%s has no sizes", path)
		}
		// The axis starts at a power of ten, and has room above for the legend.
		p.Y.Min = math.Pow(10, math.Floor(math.Log10(low)))
		p.Y.Max = high * math.Pow(high/p.Y.Min, 0.4)
		if err := save(p, filepath.Join(filepath.Dir(path), pic.file)); err != nil {
			return err
		}
	}
	return nil
}

func number(v float64) string {
	text := strconv.Itoa(int(v + 0.5))
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func seconds(v float64) string {
	if v < 0.9 {
		return number(v*1000) + " ms"
	}
	return number(v) + " s"
}

func bytesOf(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}} {
		if v > u.size*0.999 {
			return strconv.FormatFloat(v/u.size, 'f', -1, 64) + " " + u.name
		}
	}
	return number(v) + " B"
}
