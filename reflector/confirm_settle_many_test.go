package reflector

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/listing"
)

// TestLiesAboutMany: a list beside the watch is compared, too: if the file is of its version
// already, if the watch has brought that, if far more objects have come than the file had, and
// if very many were left out.
func TestLiesAboutMany(t *testing.T) {
	for name, tc := range map[string]struct {
		n      int
		lie    string
		change func(*fixture)
	}{
		"nothing waits":                    {600, "loses MODIFIED", func(f *fixture) { f.put("cm1", 10, 77) }},
		"nothing waits, and others change": {600, "loses MODIFIED", func(f *fixture) { f.put("cm1", 10, 77) }},
		"the last change comes": {600, "loses DELETED", func(f *fixture) {
			f.delete("cm2")
			f.put("cm3", 10, 78)
		}},
		"twice as many have come": {20, "loses DELETED", func(f *fixture) {
			f.delete("cm2")
			for i := range 20 {
				f.create(fmt.Sprint("new", i))
			}
		}},
		"more changes come than are kept": {600, "loses DELETED", func(f *fixture) {
			f.delete("cm2")
			for i := range mostLacking + 1 {
				f.create(fmt.Sprint("new", i))
			}
		}},
		"more are lost than are kept": {600, "begins at its oldest event", func(f *fixture) {
			for i := range mostLacking + 10 {
				f.create(fmt.Sprint("new", i))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleOfLies(t, tc.n, Options{}, lies[tc.lie], func(f *fixture, l *liar) {
				end := f.live()
				if !until(f.queue.HasSynced) {
					t.Fatal("not synced")
				}
				after(time.Minute)
				tc.change(f)
				if tc.n > 20 {
					// too much for a question
					f.store.Upstream.NoteFacts(func(f *listing.Facts) { f.MetadataSize = startBytes/uint64(tc.n) + 1 })
				}
				if strings.HasPrefix(name, "nothing waits") {
					f.other()
					after(20 * time.Minute) // the file gets the version of a bookmark
				}
				if strings.HasSuffix(name, "others change") {
					changes := func(req *http.Request) error {
						if isWatch(req) {
							f.other()
						}
						return nil
					}
					f.breaks.Store(&changes)
				}
				f.die(end)
				f.takeTold()
				f.reflect()
				after(20 * time.Second)
				if st := f.State(); f.differs() != "" || st.Uncompared || st.Relists[ReasonDiffers] != 1 ||
					len(st.Relists) != 1 {
					t.Errorf("%s; %s, uncompared %v, relists %v", f.differs(), st, st.Uncompared, st.Relists)
				}
			})
		})
	}
}

// TestReplaysOutOfOrder: a watch that begins with all objects each time, the newest one first,
// and without bookmarks is not on its way to the version of a delete, which is the last change.
// The same if lists have the newest object's version, and after lives that end early.
func TestReplaysOutOfOrder(t *testing.T) {
	for _, lie := range []string{"ignores the watch's version", "the same, and lists have objects' versions"} {
		for _, n := range []int{6, 600, 1500} {
			for _, lives := range []int{0, 2} {
				t.Run(fmt.Sprint(lie, ", ", n, " objects, ", lives, " short lives"), func(t *testing.T) {
					bubbleOfLies(t, n, Options{}, lies[lie], func(f *fixture, _ *liar) { replaysOutOfOrder(f, lives) })
				})
			}
		}
	}
}

func replaysOutOfOrder(f *fixture, lives int) {
	f.t.Helper()
	end := f.live()
	if !until(f.queue.HasSynced) {
		f.t.Fatal("not synced")
	}
	after(time.Minute)
	f.die(end)
	for i := range lives {
		f.put("cm0", 10, uint64(70+i))
		f.delete(fmt.Sprint("cm", 3+i))
		end = f.live()
		after(time.Second)
		f.die(end)
	}
	f.put("cm0", 10, 77)
	f.delete("cm2")
	f.reflect()
	after(20 * time.Second)
	if st := f.State(); f.differs() != "" || !f.queue.HasSynced() || st.Uncompared ||
		f.store.Upstream.Facts().Filtered {
		f.t.Errorf("%s, synced %v; %s, uncompared %v, filtered %v, relists %v",
			f.differs(), f.queue.HasSynced(), st, st.Uncompared, f.store.Upstream.Facts().Filtered, st.Relists)
	}
}

// TestQuiet: a watch is quiet if it brings nothing for a moment.
func TestQuiet(t *testing.T) {
	bubble(t, 1, kubesim.Options{}, Options{}, func(f *fixture) {
		end := f.live()
		defer f.die(end)
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Second)
		for _, change := range []bool{false, true, false} {
			if change {
				time.AfterFunc(calm/2, func() { f.put("cm0", 10, 77) })
			}
			if quiet, err := f.quiet(f.t.Context()); quiet == change || err != nil {
				t.Errorf("changed %v: quiet %v, %v", change, quiet, err)
			}
			after(time.Second)
		}
	})
}
