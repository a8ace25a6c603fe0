package informer

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/reflector"
)

// account is a custom resource whose marshaler leaves the password out.
type account struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Login login `json:"login"`
}

type login struct{ user, password string }

func (l login) MarshalJSON() ([]byte, error)     { return json.Marshal(l.user) }
func (l *login) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &l.user) }

func (a *account) DeepCopyObject() runtime.Object { c := *a; return &c }

type accountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []account `json:"items"`
}

func (l *accountList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// TestForeignTypeThatLoses: an object that would come back changed is not stored, and the
// state says why. The others are stored.
func TestForeignTypeThatLoses(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "f.db"), boltstore.Options{Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	object := func(name, password string) account {
		return account{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "5"},
			Login: login{"user", password}}
	}
	events := watch.NewFake()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			return &accountList{ListMeta: metav1.ListMeta{ResourceVersion: "5"},
				Items: []account{object("a", ""), object("b", "secret")}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			return events, nil
		},
	}
	inf, err := NewSharedIndexInformer(db, lw, &account{}, Options{
		Reflector: reflector.Options{Source: &boltstore.Source{Group: "example.org", Version: "v1",
			Resource: "accounts", Form: boltstore.FormTyped}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); inf.RunWithContext(ctx) }()
	defer func() { cancel(); <-ended }()
	eventually(t, "the state says why", func() bool {
		st := inf.State()
		return strings.Contains(st.Degraded, `"b"`) &&
			strings.Contains(st.Degraded, ".Login.password of *informer.account does not come back")
	})
	eventually(t, "the other is stored", func() bool { return slices.Equal(inf.GetStore().ListKeys(), []string{"a"}) })
}
