package stores_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
	"github.com/kubewake/kubewake/informer"
)

// Login is the type of a program's cached entries, with the two methods of
// runtime.Object.
type Login struct {
	User, Token string
}

// GetObjectKind implements runtime.Object.
func (l *Login) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l *Login) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// Logins outlive the process, and expire ten minutes after they were stored.
func ExampleNewTTLStore() {
	dir, err := os.MkdirTemp("", "stores")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	open := func() (*boltstore.DB, cache.Store) {
		db, err := boltstore.Open(filepath.Join(dir, "cache.db"), boltstore.Options{})
		if err != nil {
			panic(err)
		}
		s, err := db.Claim(boltstore.Claim{
			Source: boltstore.Source{Group: "example.com", Version: "v1", Resource: "logins",
				Form: boltstore.FormTyped},
			Example: &Login{},
			KeyFunc: func(obj any) (string, error) { return obj.(*Login).User, nil },
		})
		if err != nil {
			panic(err)
		}
		logins, err := stores.NewTTLStore(s, 10*time.Minute) // was: cache.NewTTLStore(keyFunc, 10*time.Minute)
		if err != nil {
			panic(err)
		}
		return db, logins
	}
	for range 2 { // two lives of the program
		db, logins := open()
		if obj, exists, err := logins.GetByKey("ann"); err == nil && exists {
			fmt.Println("ann is logged in by", obj.(*Login).Token)
		} else if err := logins.Add(&Login{User: "ann", Token: "s3cr3t"}); err == nil {
			fmt.Println("ann logs in")
		}
		if err := db.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// ann logs in
	// ann is logged in by s3cr3t
}

// A node's pods are pushed to the code that runs them, as a kubelet does with
// cache.NewUndeltaStore. The last known ones come at once, even without an API server.
func ExamplePush() {
	run := func(ctx context.Context, db *boltstore.DB, lw cache.ListerWatcher, updates chan<- []any) error {
		inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.Pod{}, informer.Options{})
		if err != nil {
			return err
		}
		go inf.RunWithContext(ctx)
		return stores.Push(ctx, inf.Store(), func(pods []any) { updates <- pods })
	}
	_ = run // it needs a server
}

// The key says where an object came from, which the object itself does not.
func ExampleNewThreadSafeStore() {
	dir, err := os.MkdirTemp("", "stores")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := boltstore.Open(filepath.Join(dir, "cache.db"), boltstore.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	s, err := db.Claim(boltstore.Claim{
		Source:  boltstore.Source{Group: "example.com", Version: "v1", Resource: "answers", Form: boltstore.FormTyped},
		Example: &corev1.ConfigMap{},
		Indexers: cache.Indexers{
			"name": func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Name}, nil },
		},
	})
	if err != nil {
		panic(err)
	}
	answers, err := stores.NewThreadSafeStore(s, nil)
	if err != nil {
		panic(err)
	}
	for _, host := range []string{"one.example.com", "two.example.com"} {
		answers.Add(host+"/config", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}})
	}
	keys, err := answers.IndexKeys("name", "config")
	fmt.Println(keys, err)
	// Output: [one.example.com/config two.example.com/config] <nil>
}

// A tool lists what another program has left in a file.
func ExampleReadOnly() {
	list := func(path string) error {
		db, err := boltstore.Open(path, boltstore.Options{ReadOnly: true, GiveWay: true})
		if err != nil {
			return err
		}
		defer db.Close()
		view, err := db.View(boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped})
		if err != nil {
			return err
		}
		pods, err := corelisters.NewPodLister(stores.ReadOnly(view)).Pods("web").List(labels.Everything())
		for _, p := range pods {
			fmt.Println(p.Name)
		}
		return err
	}
	_ = list // it needs a file
}
