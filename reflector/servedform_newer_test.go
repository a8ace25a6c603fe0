package reflector

import (
	"runtime/debug"
	"strings"
	"testing"
)

// TestNewerServer: a list notes that the server's minor version is newer than that of the
// program's types, and the next one that it is not any more.
func TestNewerServer(t *testing.T) {
	defer func(was func() uint) { programAPI = was }(programAPI)
	programAPI = func() uint { return 37 } // the build of a test has no versions
	f := newRawFixture(t, mediaProto, 0, Options{})
	f.put("cm", 500, 1)
	for version, newer := range map[string]bool{
		"v1.38.1-eks-abc": true, "v1.37.9": false, "v1.99.0+k3s1": true, "v1.2.3": false, "weekly": false,
		"v2.1.0": false,
	} {
		f.sim.Upgrade(version)
		f.sim.DropConnections()
		f.relisted()
		if got := f.store.State().LacksFields; strings.Contains(got, "built for 1.37") != newer {
			t.Errorf("server %s: %q", version, got)
		}
	}
}

// TestProgramAPI: the version of k8s.io/api is that of the module that was built in.
func TestProgramAPI(t *testing.T) {
	at := func(version string, replace *debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Deps: []*debug.Module{{Path: "k8s.io/client-go", Version: "v0.12.0"},
			{Path: "k8s.io/api", Version: version, Replace: replace}}}
	}
	for want, info := range map[uint]*debug.BuildInfo{
		37: at("v0.37.2", nil), 38: at("v0.38.0-rc.1", nil), 36: at("v0.37.2", &debug.Module{Version: "v0.36.0"}),
		0: nil,
	} {
		if got := apiIn(info); got != want {
			t.Errorf("%d, not %d", got, want)
		}
	}
	for _, info := range []*debug.BuildInfo{{}, at("v0.37.2", &debug.Module{Path: "../api"})} {
		if got := apiIn(info); got != 0 {
			t.Errorf("%d of a build that does not say", got)
		}
	}
}
