package generic_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/informer"
)

// TestIndexFunctionAsksTheFactory: the program's functions may call the factory while an
// informer is made.
func TestIndexFunctionAsksTheFactory(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			sim := simulator(t)
			path := filepath.Join(t.TempDir(), "test.db")
			for _, version := range []string{"1", "2"} { // the second life indexes what the file has
				db := open(t, path)
				var f factory
				index := func(any) ([]string, error) {
					f.ForResource(nodes).Lister()
					return []string{"none"}, nil
				}
				f, err := k.ours(config(sim), filter{}, db,
					informer.Options{Indexers: cache.Indexers{"node": index},
						IndexVersions: map[string]string{"node": version}})
				if err != nil {
					t.Fatal(err)
				}
				made := make(chan struct{})
				go func() { defer close(made); f.ForResource(widgets) }()
				select {
				case <-made:
				case <-time.After(time.Minute):
					t.Fatal("the factory waits for the index function, which waits for the factory")
				}
				ctx, stop := context.WithCancel(t.Context())
				f.Start(ctx.Done())
				if synced := f.WaitForCacheSync(ctx.Done()); !synced[widgets] {
					t.Error("not synced")
				}
				stop()
				f.Shutdown()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
