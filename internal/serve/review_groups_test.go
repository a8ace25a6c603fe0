package serve

import (
	"crypto/x509/pkix"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubewake/kubewake/boltstore/apifile"
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

// TestServiceAccountCertificate: a certificate with the name of a service account gives the
// groups of its namespace only if it has them: a server adds them to an impersonated service
// account that comes without groups.
func TestServiceAccountCertificate(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	ours := newAuthority(t)
	r := s.remote(ours)
	const account = "system:serviceaccount:web:shop"
	for _, tc := range []struct {
		user   string
		groups []string
		as     string
	}{
		{account, nil, account + " " + authenticated},
		{account, []string{"system:serviceaccounts"}, account + " system:serviceaccounts"},
		{"bob", nil, "bob "},
	} {
		a := get(t, r.client(ours, pkix.Name{CommonName: tc.user, Organization: tc.groups}), r.addr+"/api/v1/pods")
		if a.code != 200 || c.last().as != "own as "+tc.as {
			t.Errorf("%s of %q: %d, %s", tc.user, tc.groups, a.code, c.last().as)
		}
	}
}
