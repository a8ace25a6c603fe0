package boltstore

import (
	"strconv"
	"testing"
	"time"
)

// BenchmarkCommit commits one change after another, without syncs: it shows the cost of a
// commit besides the disk.
func BenchmarkCommit(b *testing.B) {
	db, err := Open(b.TempDir()+"/f.db",
		Options{Durability: DurabilityProcess, Window: time.Nanosecond, ObjectMemory: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	s, err := db.Claim(Claim{Source: configMaps, Example: configMap("", "", 0, nil)})
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		if err := s.Update(configMap("a", strconv.Itoa(i%100), i, nil)); err != nil {
			b.Fatal(err)
		}
	}
}
