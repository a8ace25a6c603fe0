package boltstore

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var thisBoot = sync.OnceValue(bootID)

// Boot implements DeviceClock.
func (machine) Boot() string {
	if id := thisBoot(); id != unknownBoot {
		return id
	}
	return ""
}

// Uptime implements DeviceClock.
func (machine) Uptime() time.Duration { return clockTime(unix.CLOCK_BOOTTIME) }

// Slept implements DeviceClock.
func (machine) Slept() time.Duration {
	return max(clockTime(unix.CLOCK_BOOTTIME)-clockTime(unix.CLOCK_MONOTONIC), 0).Truncate(10 * time.Millisecond)
}

func clockTime(id int32) time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(id, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// Synchronised implements DeviceClock: by the kernel, which a time service
// tells.
func (machine) Synchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}
