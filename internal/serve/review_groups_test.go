package serve

import (
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// TestAnonymousCertificate: a certificate that names the user or the group of unknown callers
// gives no right of those that are known, as at an API server.
func TestAnonymousCertificate(t *testing.T) {
	l := &Link{}
	for _, tc := range []struct {
		user string
		has  []string
		asks []string
	}{
		{"bob", nil, []string{authenticated}},
		{"bob", []string{"ops"}, []string{"ops", authenticated}},
		{"bob", []string{authenticated, "ops"}, []string{authenticated, "ops"}},
		{"bob", []string{unauthenticated}, []string{unauthenticated}},
		{anonymous, nil, nil},
	} {
		spec := l.asking(&caller{user: authenticationv1.UserInfo{Username: tc.user, Groups: tc.has}})
		if !slices.Equal(spec.Groups, tc.asks) {
			t.Errorf("%s of %q: %q", tc.user, tc.has, spec.Groups)
		}
	}
}
