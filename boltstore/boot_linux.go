package boltstore

import (
	"os"
	"strings"
)

// bootID names this boot of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return unknownBoot
	}
	return strings.TrimSpace(string(b))
}
