package measured

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Memory is the memory of a process, in bytes.
type Memory struct {
	Anon, File int64 // resident: its own, and pages of files
	Peak       int64 // most that was ever resident, of both
	PeakAnon   int64 // most that a sample saw of its own
	Heap       int64 // what is live, after a garbage collection
}

// Sampler samples the peak of anonymous memory, which the kernel does not record.
type Sampler struct{ peak atomic.Int64 }

// StartSampler starts sampling.
func StartSampler() *Sampler {
	s := &Sampler{}
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			if m := Resident(); m.Anon > s.peak.Load() {
				s.peak.Store(m.Anon)
			}
		}
	}()
	return s
}

// Reset forgets the peak so far.
func (s *Sampler) Reset() { s.peak.Store(0) }

// Read takes the reading and then collects garbage to know the live heap.
func (s *Sampler) Read() Memory {
	m := Resident()
	m.PeakAnon = max(s.peak.Load(), m.Anon)
	runtime.GC()
	var st runtime.MemStats
	runtime.ReadMemStats(&st)
	m.Heap = int64(st.HeapAlloc)
	return m
}

// used is what a process has used so far.
type used struct {
	processor time.Duration
	allocated int64 // bytes
}

func usage() (u used) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil {
		u.processor = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	var st runtime.MemStats
	runtime.ReadMemStats(&st)
	u.allocated = int64(st.TotalAlloc)
	return u
}

// Resident reads the kernel's figures; they are zero on a system without them.
func Resident() (m Memory) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return m
	}
	fields := map[string]*int64{"RssAnon": &m.Anon, "RssFile": &m.File, "VmHWM": &m.Peak}
	for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
		name, value, _ := strings.Cut(in.Text(), ":")
		if at := fields[name]; at != nil {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			*at = kib << 10
		}
	}
	return m
}
