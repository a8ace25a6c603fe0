// Command dictionary makes the dictionary that packed payloads use, from objects that it
// makes itself:
//
//	cd tests && go run ./dictionary
//
// It gives the same bytes each time.
package main

import (
	"log"
	"os"

	"github.com/klauspost/compress/zstd"
)

const (
	file   = "../boltstore/internal/pack/dictionary.zstd"
	size   = 63 << 10 // of the dictionary's content, in bytes; its tables take less than 1 KiB
	id     = 1        // format.Dictionary
	rounds = 16       // objects that are made of a template
)

func main() {
	d, err := dictionary()
	if err == nil {
		err = os.WriteFile(file, d, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// dictionary has the parts that most samples share, and tables of how often bytes occur in
// what they do not share.
func dictionary() ([]byte, error) {
	samples, err := payloads(rounds)
	if err != nil {
		return nil, err
	}
	return zstd.BuildDict(zstd.BuildDictOptions{ID: id, Contents: samples, History: cover(samples, size),
		Offsets: [3]int{1, 4, 8}, Level: zstd.SpeedFastest})
}
