// Draw makes the pictures of docs/benchmarks.md, as SVG beside the file with the figures:
// from growth.json, which the benchmark saves, the pictures of growth, and from
// edge-day.csv that of the day of edge life.
//
//	cd tests && go run ./bench/draw ../docs/pictures/growth.json ../docs/pictures/edge-day.csv
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	for _, path := range os.Args[1:] {
		if err := draw(path); err != nil {
			fmt.Fprintln(os.Stderr, "draw:", err)
			os.Exit(1)
		}
	}
}

func draw(path string) error {
	if filepath.Ext(path) == ".csv" {
		return drawDay(path)
	}
	return drawGrowth(path)
}
