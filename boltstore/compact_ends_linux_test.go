package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestCompactEnds: a compaction that has ended reads no more of the file.
func TestCompactEnds(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{})
	srv := server{}
	for i := range 400 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1,
			map[string]string{"a": strings.Repeat(fmt.Sprint(i), 40000)}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	read := func() (n int64) {
		b, err := os.ReadFile("/proc/self/io")
		must(t, err)
		_, err = fmt.Sscanf(string(b), "rchar: %d", &n)
		must(t, err)
		return n
	}
	ctx, cancel := context.WithCancel(context.Background())
	var from int64
	_, err := db.Compact(ctx, func(done, _ int64) {
		if done > 0 && from == 0 {
			cancel()
			from = read()
		}
	})
	if more := read() - from; !errors.Is(err, context.Canceled) || more > 8<<20 {
		t.Errorf("%v; of %d bytes it has read %d after its end", err, db.Size(), more)
	}
}
