package boltstore

import (
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestHandlerNameLostWithPage: an unregistered handler whose name was lost with a damaged page starts
// over. It does not count as new, since it has a past. If nothing was lost, a new
// handler is new.
func TestHandlerNameLostWithPage(t *testing.T) {
	for _, where := range []string{"nothing", "handlers", "source"} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprint(where, ", open: ", open), func(t *testing.T) {
				path := testPath(t)
				db := openTest(t, path, Options{Window: time.Nanosecond})
				s := claimTest(t, db, Claim{})
				for i := range 40 { // too many to be inlined
					h, pos := claimHandler(t, s, fmt.Sprint("handler-", i))
					pos.set(func(p *Position) { p.Replaying = false })
					h.Changed()
					if err := h.Release(); err != nil {
						t.Fatal(err)
					}
				}
				page := 0
				err := db.h.view(func(tx *bolt.Tx) error {
					src, _ := db.h.source(tx, configMaps.ID())
					b := src.Root
					if where == "handlers" {
						b = b.Bucket(layout.BucketHandlers)
					}
					page = int(b.Root())
					return nil
				})
				if err != nil || page == 0 {
					t.Fatal(page, err)
				}
				switch {
				case where == "nothing":
				case open:
					ruin(t, path, page)
					db.healing().heal(errTripped, db.h.now.Load())
				}
				if !open {
					closeTest(t, db)
					if where != "nothing" {
						ruin(t, path, page)
					}
					db = openTest(t, path, Options{Window: time.Nanosecond})
					s = claimTest(t, db, Claim{})
				}
				if where == "nothing" {
					h, pos := claimHandler(t, s, "handler-40")
					if pos.p.Reset || !pos.p.Replaying {
						t.Errorf("a new one: %+v", pos.p)
					}
					if err := h.Release(); err != nil {
						t.Fatal(err)
					}
				}
				if where == "source" && !open {
					return // nothing is known of the source, not even which it was
				}
				for _, name := range []string{"handler-0", "handler-39"} {
					p := &testPosition{}
					_, err := s.ClaimHandler(name, p, func(pos Position, _ uint64, known bool) {
						if p.p = pos; !known {
							t.Errorf("%s is not known", name)
						}
					})
					if err != nil {
						t.Fatal(err)
					}
					if lost := where != "nothing"; p.p.Reset != lost || p.p.Replaying != lost {
						t.Errorf("%s: %+v", name, p.p)
					}
				}
				if where != "nothing" { // also in another epoch
					if err := s.SetAside(); err != nil {
						t.Fatal(err)
					}
					if _, pos := claimHandler(t, s, "handler-1"); !pos.p.Reset {
						t.Errorf("%+v", pos.p)
					}
				}
			})
		}
	}
}
