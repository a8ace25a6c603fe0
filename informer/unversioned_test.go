package informer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// TestVersionZeroIsNone: an event or a bookmark at version 0, which means any version, is
// not a resume point: a watch from there misses deletes.
func TestVersionZeroIsNone(t *testing.T) {
	for _, typ := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
		t.Run(string(typ), func(t *testing.T) {
			db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			at := func(name, rv string) *corev1.ConfigMap {
				o := cm(name)
				o.ResourceVersion = rv
				return o
			}
			watched := make(chan string, 100)
			events := watch.NewFake()
			lw := &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "5"},
						Items: []corev1.ConfigMap{*at("a", "3")}}, nil
				},
				WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
					watched <- o.ResourceVersion
					return events, nil
				},
			}
			inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, Options{
				Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
					Form: boltstore.FormTyped}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); inf.RunWithContext(ctx) }()
			if rv := <-watched; rv != "5" {
				t.Errorf("watched from %q", rv)
			}
			events.Add(at("b", "7"))
			events.Action(typ, at("c", "0"))
			for range 2 { // the second is taken once the first, and so what came before it, has been accepted
				events.Action(watch.Bookmark, at("", ""))
			}
			if rv := inf.LastSyncResourceVersion(); rv != "7" {
				t.Errorf("it goes on from %q", rv)
			}
			cancel()
			<-done
			if states, err := db.States(); err != nil || states[0].ResourceVersion != "7" {
				t.Errorf("the file goes on from %q, %v", states[0].ResourceVersion, err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMaxStalenessWithoutVersions: a confirmation by a server without versions counts,
// too. Purged contents do not.
func TestMaxStalenessWithoutVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	for i, tc := range []struct {
		err       error
		staleness time.Duration
		synced    bool
	}{
		{nil, 0, true},
		{errors.New("no link"), time.Hour, true},
		{errors.New("no link"), -1, true},
		{errors.New("no link"), time.Nanosecond, false},
	} {
		db, err := boltstore.Open(path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{}, 1000)
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				asked <- struct{}{}
				return &corev1.ConfigMapList{Items: []corev1.ConfigMap{*cm("a")}}, tc.err
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return watch.NewFake(), tc.err
			},
		}
		inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, Options{MaxStaleness: tc.staleness,
			Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
				Form: boltstore.FormTyped}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		<-asked
		if tc.synced {
			eventually(t, fmt.Sprint(i, " synced"), inf.HasSynced)
		} else if inf.HasSynced() {
			t.Error(i, "synced")
		}
		if n := len(inf.GetStore().List()); n != 1 && i > 0 {
			t.Errorf("%d: %d objects", i, n)
		}
		cancel()
		<-done
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
