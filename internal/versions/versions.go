// Package versions compares resourceVersions.
package versions

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Newer says whether version a is certainly later than b. Of two versions that cannot be
// compared, such as "" and any other, neither is newer.
func Newer(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c > 0
}
