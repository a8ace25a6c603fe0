package boltstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// account is a custom resource whose marshaler leaves out the password.
type account struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Login login `json:"login"`
}

type login struct{ user, password string }

func (l login) MarshalJSON() ([]byte, error)     { return json.Marshal(l.user) }
func (l *login) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &l.user) }

func (a *account) DeepCopyObject() runtime.Object { c := *a; return &c }

func accountOf(n int, password string) *account {
	return &account{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("a", n), UID: "u",
		ResourceVersion: fmt.Sprint(n + 1)}, Login: login{"user", password}}
}

var accounts = Source{Group: "example.org", Version: "v1", Resource: "accounts", Form: FormTyped}

// decoding counts how often a codec decodes.
type decoding struct {
	codec.Codec
	n int
}

func (d *decoding) Decode(data []byte) (runtime.Object, error) { d.n++; return d.Codec.Decode(data) }

// TestForeignTypesAreTried: the first objects of a foreign type are decoded and compared. One
// that comes back changed is refused, and all later ones are compared, too.
func TestForeignTypesAreTried(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Source: accounts, Example: &account{}})
	counted := &decoding{Codec: s.coder.codec}
	s.coder.codec = counted
	prepare := func(n int, password string) error {
		_, err := s.Feed.Prepare(cache.Added, accountOf(n, password))
		return err
	}
	for n := range trialObjects - 1 {
		if err := prepare(n, ""); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		err := prepare(0, "secret")
		if !errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), ".Login.password") ||
			!strings.Contains(err.Error(), "Codec") {
			t.Fatal(err)
		}
	}
	for n := range 3 * trialObjects {
		if err := prepare(n, ""); err != nil {
			t.Fatal(err)
		}
	}
	if want := 4*trialObjects + 2; counted.n != want {
		t.Errorf("%d objects were decoded, not %d", counted.n, want)
	}
	if err := prepare(0, "secret"); !errors.Is(err, codec.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := s.Feed.Prepare(cache.Deleted, accountOf(0, "secret")); err != nil {
		t.Errorf("a delete is refused: %v", err)
	}
	if err := s.Add(accountOf(0, "secret")); !errors.Is(err, codec.ErrUnsupported) {
		t.Error(err)
	}
}

// TestTrialOfForeignTypesEnds: later objects are not tried, nor are those of a given codec or of
// Kubernetes' own types.
func TestTrialOfForeignTypesEnds(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	own, err := codec.For(&account{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		claim Claim
		obj   func(n int) runtime.Object
		want  int
	}{
		"foreign": {Claim{Source: accounts, Example: &account{}}, func(n int) runtime.Object {
			return accountOf(n, "")
		}, trialObjects},
		"codec given": {Claim{Source: Source{Version: "v1", Resource: "other", Form: FormTyped}, Example: &account{},
			Codec: own},
			func(n int) runtime.Object { return accountOf(n, "secret") }, 0},
		"config maps": {Claim{Example: &corev1.ConfigMap{}, Source: configMaps}, func(n int) runtime.Object {
			return configMap("a", fmt.Sprint("c", n), n+1, nil)
		}, 0},
	} {
		s := claimTest(t, db, tc.claim)
		counted := &decoding{Codec: s.coder.codec}
		s.coder.codec = counted
		for n := range 3 * trialObjects {
			if _, err := s.Feed.Prepare(cache.Added, tc.obj(n)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if counted.n != tc.want {
			t.Errorf("%s: %d objects were decoded, not %d", name, counted.n, tc.want)
		}
	}
}

// bookish fills a field that it has no marshaler for.
type bookish struct {
	account
	Half half
}

type half struct{ what string }

func (h *half) UnmarshalJSON(data []byte) error { h.what = string(data); return nil }

func (r *bookish) DeepCopyObject() runtime.Object { c := *r; return &c }

// TestHalfMarshalerIsRefused: a claim refuses half a pair of marshalers, and the error
// says what to do.
func TestHalfMarshalerIsRefused(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	c := Claim{Source: accounts, Example: &bookish{}}
	_, err := db.Claim(c)
	named := err != nil && strings.Contains(err.Error(), ".Half.what of *boltstore.bookish does not come back")
	if !errors.Is(err, codec.ErrUnsupported) || !named || !strings.Contains(err.Error(), "give a codec") {
		t.Fatal(err)
	}
	if c.Codec, err = codec.For(&account{}); err != nil {
		t.Fatal(err)
	}
	claimTest(t, db, c)
}
