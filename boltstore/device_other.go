//go:build !linux

package boltstore

import "time"

// Machines with these systems have clocks with a battery.

// Boot implements DeviceClock.
func (machine) Boot() string { return "" }

// Uptime implements DeviceClock.
func (machine) Uptime() time.Duration { return 0 }

// Slept implements DeviceClock.
func (machine) Slept() time.Duration { return 0 }

// Synchronised implements DeviceClock.
func (machine) Synchronised() bool { return true }
