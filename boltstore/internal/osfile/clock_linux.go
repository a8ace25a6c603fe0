package osfile

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var thisBoot = sync.OnceValue(BootID)

// Boot names this boot of the machine, "" if the system does not.
func Boot() string {
	if id := thisBoot(); id != UnknownBoot {
		return id
	}
	return ""
}

// Uptime is the time since the machine was booted, sleep included, also in a time
// namespace.
func Uptime() time.Duration { return clockTime(unix.CLOCK_BOOTTIME) }

// Slept is how long the machine has slept since it was booted.
func Slept() time.Duration {
	return max(clockTime(unix.CLOCK_BOOTTIME)-clockTime(unix.CLOCK_MONOTONIC), 0).Truncate(10 * time.Millisecond)
}

func clockTime(id int32) time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano()) - shifts()[id]
}

// shifts has how far this process's time namespace shifts each clock. Processes of the
// same boot in other namespaces read the times that this one writes.
var shifts = sync.OnceValue(func() map[int32]time.Duration {
	by := map[int32]time.Duration{}
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return by // a kernel without time namespaces
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var sec, nsec int64
		if _, err := fmt.Sscan(line, &name, &sec, &nsec); err != nil {
			continue
		}
		switch shift := time.Duration(sec)*time.Second + time.Duration(nsec); name {
		case "monotonic":
			by[unix.CLOCK_MONOTONIC] = shift
		case "boottime":
			by[unix.CLOCK_BOOTTIME] = shift
		}
	}
	return by
})

// Synchronised says whether a time service keeps the clock right, as the kernel
// knows it.
func Synchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}
