package osfile

import (
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

// Uptime is the time since the machine was booted, sleep included.
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
	return time.Duration(ts.Nano())
}

// Synchronised says whether a time service keeps the clock right, as the kernel
// knows it.
func Synchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}
