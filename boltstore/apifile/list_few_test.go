package apifile

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestSmallPagesOfFew: a page of few objects that are hard to find takes about as long as
// all of them. If some keys are long, each piece that is read reads all keys.
func TestSmallPagesOfFew(t *testing.T) {
	for _, digits := range []int{6, 600} {
		db := filetest.Open(t, boltstore.Options{})
		s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
		const n = 3000
		objs := make([]runtime.Object, n)
		for i := range objs {
			objs[i] = configMap("a", fmt.Sprintf("c%0*d", digits, i), i+1)
		}
		filetest.Relist(t, s, "100000", objs...)
		h := New(db, Options{})
		took := func(query string) time.Duration {
			began := time.Now()
			expect(t, h, "/api/v1/configmaps?labelSelector=no%3Dne"+query, 200, "")
			return time.Since(began)
		}
		took("")
		all, one := took(""), took("&limit=1")
		for range 20 { // a busy machine may stand still in one of them
			if one > 15*all {
				all, one = took(""), took("&limit=1")
			}
		}
		if one > 15*all {
			t.Errorf("names of %d digits: a page of one took %s, all %s", digits, one, all)
		}
	}
}
