package apifile

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestSmallPagesOfFew: a page of few objects that are hard to find takes about as long as
// all of them. Each piece that is read of an encrypted file reads all keys.
func TestSmallPagesOfFew(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		o := boltstore.Options{}
		if sealed {
			o.Keyset = sealtest.Keyset()
		}
		db := filetest.Open(t, o)
		s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
		const n = 3000
		objs := make([]runtime.Object, n)
		for i := range objs {
			objs[i] = configMap("a", fmt.Sprintf("c%06d", i), i+1)
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
			t.Errorf("encrypted %v: a page of one took %s, all %s", sealed, one, all)
		}
	}
}
