// Package lately says which of two sources in a file the server has confirmed later.
package lately

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/boltstore"
)

// Compare is 1 if a was confirmed later than b, and -1 if earlier. If an age is not known,
// as on a device whose clock restarts at boot, the times do not count. Then the server's
// versions count, if they can be compared. Without ages, three sources of two clusters may
// be in a circle. A sort then puts any of them first, and no clock says which one is right.
func Compare(a, b boltstore.State) int {
	switch {
	case a.ConfirmedAge != nil && b.ConfirmedAge != nil:
		return cmp.Compare(*b.ConfirmedAge, *a.ConfirmedAge)
	case a.ConfirmedAge != nil:
		return 1
	case b.ConfirmedAge != nil:
		return -1
	}
	if a.ClusterUID == b.ClusterUID {
		if order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion); err == nil &&
			order != 0 {
			return order
		}
	}
	return a.Confirmed.Compare(b.Confirmed)
}
