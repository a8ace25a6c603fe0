package boltstore

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// everyBound fails unless each bound and time of Options is in one of the cases.
func everyBound(t *testing.T, cases map[string]Options) {
	t.Helper()
	for f := range reflect.TypeFor[Options]().Fields() {
		switch f.Type {
		case reflect.TypeFor[time.Duration](), reflect.TypeFor[int](), reflect.TypeFor[int64](),
			reflect.TypeFor[float64]():
			there := false
			for _, o := range cases {
				there = there || !reflect.ValueOf(o).FieldByIndex(f.Index).IsZero()
			}
			if !there {
				t.Errorf("no case has a value of Options.%s", f.Name)
			}
		}
	}
}

// TestAnyOptionValues: a file works with any value of its bounds and times.
func TestAnyOptionValues(t *testing.T) {
	const most, least = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	cases := map[string]Options{}
	for _, d := range []time.Duration{-1, 1, least, most} {
		cases[fmt.Sprint("Window ", int64(d))] = Options{Window: d}
		cases[fmt.Sprint("FlushInterval ", int64(d))] = Options{FlushInterval: d}
		cases[fmt.Sprint("bookmarkInterval ", int64(d))] = Options{bookmarkInterval: d}
		cases[fmt.Sprint("JournalAge ", int64(d))] = Options{JournalAge: d}
		cases[fmt.Sprint("HandlerAge ", int64(d))] = Options{HandlerAge: d}
		cases[fmt.Sprint("CollectAfter ", int64(d))] = Options{CollectAfter: d}
		cases[fmt.Sprint("LockTimeout ", int64(d))] = Options{LockTimeout: d}
	}
	for _, n := range []int64{-1, 1, math.MinInt64, math.MaxInt64} {
		cases[fmt.Sprint("maxCommitBytes ", n)] = Options{maxCommitBytes: int(n)}
		cases[fmt.Sprint("fillKeys ", n)] = Options{fillKeys: int(n)}
		cases[fmt.Sprint("JournalBytes ", n)] = Options{JournalBytes: n}
		cases[fmt.Sprint("maxRelists ", n)] = Options{maxRelists: int(n)}
		cases[fmt.Sprint("hotBytes ", n)] = Options{hotBytes: n}
		cases[fmt.Sprint("keepCorrupt ", n)] = Options{keepCorrupt: int(n), keepCorruptBytes: n}
		cases[fmt.Sprint("compactMinSize ", n)] = Options{compactMinSize: n}
	}
	for _, r := range []float64{1e-9, math.NaN(), math.Inf(1), math.Inf(-1)} {
		cases[fmt.Sprint("compactRatio ", r)] = Options{compactRatio: r, compactMinSize: 1}
	}
	for _, n := range []int64{1, math.MinInt64, math.MaxInt64} {
		cases[fmt.Sprint("ObjectMemory ", n)] = Options{ObjectMemory: n}
	}
	cases["MaxSize negative"] = Options{MaxSize: -1}
	cases["MaxSize huge"] = Options{MaxSize: math.MaxInt}
	everyBound(t, cases)
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Keyset = sealtest.Default()
			path := testPath(t)
			db, err := Open(path, o)
			if err != nil {
				t.Fatal(err)
			}
			s := claimTest(t, db, Claim{Indexers: indexers})
			done, err := s.Upstream.WaitForTurn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if err := r.Page([]runtime.Object{configMap("a", fmt.Sprint("o", i), i+1, nil),
					configMap("b", fmt.Sprint("o", i), i+1, nil)}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.Commit("9", time.Now()); err != nil {
				t.Fatal(err)
			}
			done()
			h, _ := claimHandler(t, s, "test")
			tookReset(t, h)
			p := &testProducer{}
			s.Feed.Attach(p)
			const changes = 20
			for i := range changes {
				p.add(t, s, configMap("a", "o", i+10, map[string]string{"words": strings.Repeat("w", i)}))
				s.Delivery.SetTold(uint64(i))
				s.Feed.Flush()
			}
			for range changes {
				p.wait(t)
			}
			if _, err := s.Feed.ReadJournal(changes); err != nil {
				t.Error(err)
			}
			if _, err := db.collecting().collect(t.Context(), db.opts.CollectAfter); err != nil {
				t.Error(err)
			}
			if hs, err := s.Handlers(); err != nil || len(hs) != 1 {
				t.Errorf("%+v, %v", hs, err)
			}
			if err := h.Release(); err != nil {
				t.Error(err)
			}
			s.Release()
			if _, err := db.Compact(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if r, err := db.Check(); err != nil || !r.Sound() {
				t.Errorf("%+v %v", r, err)
			}
			closeTest(t, db)
			if _, err := Compact(t.Context(), path, o, nil); err != nil {
				t.Error(err)
			}
			o.ReadOnly = true
			db, err = Open(path, o)
			if err != nil {
				t.Fatal(err)
			}
			defer closeTest(t, db)
			all, err := db.States()
			collects := o.CollectAfter > 0 && o.CollectAfter != most
			whole := len(all) == 1 && all[0].Objects == 7 && all[0].ResourceVersion == fmt.Sprint(changes+9)
			if err == nil && !collects && !whole {
				t.Errorf("%+v", all)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
