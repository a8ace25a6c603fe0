package seal_test

import (
	"errors"
	"fmt"
	"log"
	"path/filepath"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/exampletest"
)

// A file is encrypted with a keyset, which is kept elsewhere. After a rotation the next
// Open uses the keyset's new key.
func ExampleFile() {
	cluster := exampletest.Start()
	defer cluster.End()
	keys := filepath.Join(filepath.Dir(cluster.Path()), "keyset.json") // in practice not beside the file
	if err := seal.Generate(keys); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		db, err := boltstore.Open(cluster.Path(), boltstore.Options{Keyset: seal.File(keys)})
		if err != nil {
			log.Fatal(err)
		}
		if err := db.Close(); err != nil {
			log.Fatal(err)
		}
		if err := seal.Rotate(keys); err != nil {
			log.Fatal(err)
		}
	}
	_, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	fmt.Println("without the keyset:", errors.Is(err, boltstore.ErrKeyset))
	// Output:
	// without the keyset: true
}
