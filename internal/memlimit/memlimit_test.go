package memlimit

import (
	"testing"
	"testing/fstest"
)

// TestCgroup: the least limit of the control group and those above it counts.
func TestCgroup(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none": {nil, 0},
		"container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "67108864\n"}, 64 << 20},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"unlimited group": {map[string]string{
			"proc/self/cgroup": "0::/a.slice\n", "sys/fs/cgroup/a.slice/memory.max": "max\n"}, 0},
		"a group above": {map[string]string{
			"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/memory.max": "1000\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max": "2000\n"}, 1000},
		"no limit below": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "3000",
			"sys/fs/cgroup/a/b/memory.max": "max"}, 3000},
		"version 1": {map[string]string{"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/c\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
			"sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes": "3000\n"}, 3000},
		"version 1, none": {map[string]string{"proc/self/cgroup": "3:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 0},
		"the host's path": {map[string]string{"proc/self/cgroup": "3:memory:/docker/0a\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "5000\n"}, 5000},
		"malformed": {map[string]string{"proc/self/cgroup": "what\n0::\n", "sys/fs/cgroup/memory.max": "much"}, 0},
	} {
		root := fstest.MapFS{}
		for file, text := range tc.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := Cgroup(root); got != tc.want {
			t.Errorf("%s: %d, not %d", name, got, tc.want)
		}
	}
}
