package reflector

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestPagesGrow: fewer requests for small objects; the size that a caller sets
// is kept.
func TestPagesGrow(t *testing.T) {
	limits := func(f *fixture) (limits []string) {
		f.list()
		for _, r := range f.sim.Requests() {
			if r.FullRead() {
				limits = append(limits, r.Query.Get("limit"))
			}
		}
		if n := len(f.store.ListKeys()); n != 4000 {
			f.t.Errorf("%d objects", n)
		}
		return limits
	}
	bubble(t, 4000, kubesim.Options{}, Options{}, func(f *fixture) {
		if got := fmt.Sprint(limits(f)); got != "[250 2000 10000]" {
			t.Error(got)
		}
	})
	bubble(t, 4000, kubesim.Options{}, Options{pageBytes: 200_000}, func(f *fixture) {
		if got := limits(f); len(got) < 5 {
			t.Error(got)
		}
	})
	bubble(t, 4000, kubesim.Options{}, Options{pageSize: 2000}, func(f *fixture) {
		if got := fmt.Sprint(limits(f)); got != "[2000 2000]" {
			t.Error(got)
		}
	})
}

// TestPagesShrink: a server that sends smaller pages than requested is read to the end,
// in one list, for any requested page size; and a repair of its objects tells only the
// differences.
func TestPagesShrink(t *testing.T) {
	for name, o := range map[string]Options{"by itself": {}, "as the caller says": {pageSize: 20},
		"metadata first": {repair: listMetadata}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 50, kubesim.Options{LargestPage: 7}, o, func(f *fixture) {
				f.reflect()
				after(5 * time.Second)
				if d := f.differs(); d != "" || f.State().Phase != PhaseLive || f.State().Relists[ReasonFirst] != 1 {
					t.Error(d, f.State())
				}
				f.costs("the first sync", kubesim.Cost{FullReads: 8, Watches: 1, Others: 1, Forms: 2, Bytes: 12_000})
				f.takeTold()
				if err := f.sim.RefuseConnections(true); err != nil {
					t.Fatal(err)
				}
				f.put("cm3", 10, 1)
				f.delete("cm20")
				f.create("cm200")
				f.sim.Compact()
				if err := f.sim.RefuseConnections(false); err != nil {
					t.Fatal(err)
				}
				after(time.Minute)
				if told := f.takeTold(); told != "Added cm200, Deleted cm20, Updated cm3" {
					t.Errorf("told %q", told)
				}
				if d := f.differs(); d != "" || f.State().Phase != PhaseLive || f.State().Relists[ReasonExpired] != 1 {
					t.Error(d, f.State())
				}
				most := kubesim.Cost{Questions: 2, FullReads: 8, Watches: 3, Others: 2, Forms: 2, Bytes: 12_500}
				if o.repair == listMetadata { // three objects by themselves
					most.Others, most.Bytes = 5, 17_000
				}
				f.costs("the repair", most)
			})
		})
	}
}

// TestFirstPageTooLarge: the first page of a list, which may be as large as those of the
// last one have grown, gets smaller if the link breaks before it has come.
func TestFirstPageTooLarge(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{repair: listFull}, func(f *fixture) {
		const objects = 1000
		for i := range objects {
			f.put(fmt.Sprintf("cm%04d", i), 1500, uint64(i))
		}
		f.reflect()
		after(10 * time.Second)
		grown := f.facts.pageSize
		if !f.queue.HasSynced() || grown < objects {
			t.Fatalf("pages of %d, %s", grown, f.State())
		}
		f.sim.SetBandwidth(50_000 / 8)
		f.put("cm0003", 100, 1)
		f.sim.Compact()
		f.sim.DropConnections()
		f.every(40*time.Second, func(int) { f.sim.DropConnections() })
		f.forget()
		if !until(func() bool { return f.State().Relists[ReasonExpired] > 0 }) {
			t.Errorf("not read in an hour: %s, %+v", f.State(), f.traffic())
		}
		if n := f.traffic(); n.bytes > 2*objects*1850 {
			t.Errorf("%+v", n)
		}
		after(20 * time.Second)
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}
