package main

import (
	"testing"
	"testing/fstest"
)

// TestCgroupMemory: the least limit of the cgroup and those above it counts.
func TestCgroupMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none":      {nil, 0},
		"container": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "67108864\n"}, 64 << 20},
		"unlimited": {map[string]string{"proc/self/cgroup": "0::/a.slice\n", "sys/fs/cgroup/a.slice/memory.max": "max\n"}, 0},
		"service": {map[string]string{"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/memory.max": "1000\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max": "2000\n"}, 1000},
		"version 1": {map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/c\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes": "3000\n"}, 3000},
	} {
		root := fstest.MapFS{}
		for file, text := range tc.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := cgroupMemory(root); got != tc.want {
			t.Errorf("%s: %d, not %d", name, got, tc.want)
		}
	}
}
