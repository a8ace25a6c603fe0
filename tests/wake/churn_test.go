package wake

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/tuning"
)

// The values of envDurability. Both also make commits many and small, so that
// most of the time one is under way, and relists too large for one.
const (
	fullSyncs = "full"
	noSyncs   = "none"
)

func childOptions() boltstore.Options {
	o := boltstore.Options{}
	switch os.Getenv(envDurability) {
	case "":
		return o
	case noSyncs:
		o.Durability = boltstore.DurabilityProcess
	}
	o.Window, o.FlushInterval = time.Nanosecond, 50*time.Millisecond
	o.JournalBytes = 4 << 20 // so that the disk has room for the file twice, after any number of rounds
	tuning.SetFile(&o, tuning.File{MaxCommitBytes: 16 << 10, Boot: os.Getenv(envBoot)})
	if path := os.Getenv(envKeyset); path != "" {
		o.Keyset = seal.File(path)
	}
	return o
}

// Operations on the file beside commits. A program that is to do them has their name in
// envChurn.
const (
	compacting = "compact"
	rotating   = "rotate"
)

// churn replaces the file that is in use, again and again, until that fails.
func churn(db *boltstore.DB) {
	for {
		if _, err := db.Compact(context.Background(), nil); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			return
		}
		<-time.After(20 * time.Millisecond) // for the commits
	}
}
