package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// pair of restarts, one after the other.
type pair struct{ kubewake, stock report }

// sizeResult has the figures for one number of pods.
type sizeResult struct {
	pods     int
	meanJSON int
	idle     report
	fill     report
	pairs    []pair
	still    report // of kubewake, with nothing at all written since
}

// results of a run.
type results struct {
	machine string
	pairs   int
	sizes   []sizeResult
	expiry  []expiryRound
}

// machine describes where the run took place, with the version of the API
// server if there was one.
func machine(server string) string {
	model := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
			if k, v, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	m := fmt.Sprintf("%d cores (%s), %s/%s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH,
		runtime.Version())
	if server != "" {
		m += fmt.Sprintf(", kube-apiserver %s with etcd, all on this machine", server)
	}
	return m
}

// both are the medians of a figure of two programs, and of the ratios of pairs.
type both struct{ kubewake, stock, ratio float64 }

func medians[P any](pairs []P, of func(P) (kubewake, stock float64)) both {
	var a, b, r []float64
	for _, p := range pairs {
		k, s := of(p)
		a, b, r = append(a, k), append(b, s), append(r, k/s)
	}
	return both{median(a), median(b), median(r)}
}

func median(v []float64) float64 { return measured.Median(v) }

// of returns the medians of a figure of reports.
func (r sizeResult) of(figure func(report) float64) both {
	return medians(r.pairs, func(p pair) (float64, float64) { return figure(p.kubewake), figure(p.stock) })
}

// ofExpiry returns the medians of a figure of kubewake and client-go.
func (r *results) ofExpiry(figure func(expiryReport) float64) both {
	return medians(r.expiry, func(p expiryRound) (float64, float64) { return figure(p.kubewake), figure(p.stock) })
}

// oneList are the medians of kubewake's bytes and of one list's.
func (r *results) oneList() both {
	return medians(r.expiry, func(p expiryRound) (float64, float64) { return liveBodies(p.kubewake), float64(p.list) })
}

// Figures of a report, in milliseconds and bytes.
func ms(d time.Duration) float64           { return float64(d) / float64(time.Millisecond) }
func opened(r report) float64              { return ms(r.Open) }
func firstRead(r report) float64           { return ms(r.FirstRead) }
func read(r report) float64                { return ms(r.Read) }
func told(r report) float64                { return ms(r.Told) }
func synced(r report) float64              { return ms(r.Synced) }
func confirmed(r report) float64           { return max(0, ms(r.Synced-r.Told)) }
func processor(r report) float64           { return ms(r.Processor) }
func requests(r report) float64            { return float64(r.Traffic.Requests) }
func bodies(r report) float64              { return float64(r.Traffic.Bodies) }
func conns(r report) float64               { return float64(r.Traffic.Conns) }
func anon(r report) float64                { return float64(r.Memory.Anon) }
func file(r report) float64                { return float64(r.Memory.File) }
func heap(r report) float64                { return float64(r.Memory.Heap) }
func peakAnon(r report) float64            { return float64(r.Memory.PeakAnon) }
func peak(r report) float64                { return float64(r.Memory.Peak) }
func equal(r expiryReport) float64         { return ms(r.Equal) }
func quiet(r expiryReport) float64         { return ms(r.Quiet) }
func back(r expiryReport) float64          { return ms(r.Back) }
func liveProcessor(r expiryReport) float64 { return ms(r.Processor) }
func allocated(r expiryReport) float64     { return float64(r.Allocated) }
func calls(r expiryReport) float64         { return float64(r.Adds + r.Updates + r.Deletes) }
func liveRequests(r expiryReport) float64  { return float64(r.Traffic.Requests) }
func liveBodies(r expiryReport) float64    { return float64(r.Traffic.Bodies) }
func liveConns(r expiryReport) float64     { return float64(r.Traffic.Conns) }
func livePeak(r expiryReport) float64      { return float64(r.Memory.PeakAnon) }
