package reflector

import (
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
)

// programAPI is the minor version of the k8s.io/api that the program was built with, 0 if
// the build does not say, as that of a test does not.
var programAPI = sync.OnceValue(func() uint {
	info, _ := debug.ReadBuildInfo()
	return apiIn(info)
})

func apiIn(info *debug.BuildInfo) uint {
	if info == nil {
		return 0
	}
	for _, d := range info.Deps {
		if d.Path != "k8s.io/api" {
			continue
		}
		if d.Replace != nil {
			d = d.Replace
		}
		if v, err := version.ParseGeneric(d.Version); err == nil && v.Major() == 0 {
			return v.Minor()
		}
	}
	return 0
}

// newerServer is what stands before a sign if the server knows fields that the program's
// types lack, since its minor version is newer; see [listing.Facts].
func newerServer(gitVersion string) string {
	v, err := version.ParseGeneric(gitVersion)
	if err != nil || v.Major() != 1 || programAPI() == 0 || v.Minor() <= programAPI() {
		return ""
	}
	return fmt.Sprintf("1.%d>1.%d:", v.Minor(), programAPI())
}
