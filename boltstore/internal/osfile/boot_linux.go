package osfile

import (
	"os"
	"strings"
)

// BootID names this boot of the machine.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return UnknownBoot
	}
	return strings.TrimSpace(string(b))
}
