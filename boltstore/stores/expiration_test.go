package stores_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	framework "k8s.io/client-go/tools/cache/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/informertest"
	"github.com/kubewake/kubewake/internal/devicetest"
)

// device is a TTL store on a device that reboots.
type device struct {
	t    *testing.T
	dev  *devicetest.Device
	path string
	db   *boltstore.DB
	s    cache.Store
}

func (d *device) open() {
	d.t.Helper()
	if d.db != nil {
		closeDB(d.t, d.db)
	}
	d.db = open(d.t, d.path, boltstore.Options{Clock: d.dev})
	d.s = must(stores.NewTTLStore(claim(d.t, d.db), time.Hour))(d.t)
}

func (d *device) reboot(wall time.Time) {
	d.dev.Reboot(wall)
	d.open()
}

// is fails unless the store serves these entries and has these keys.
func (d *device) is(what, entries, keys string) {
	d.t.Helper()
	if got := text(d.s.List()); got != entries {
		d.t.Errorf("%s: %s, want %s", what, got, entries)
	}
	if got := fmt.Sprint(sorted(d.s.ListKeys())); got != keys {
		d.t.Errorf("%s: keys %s, want %s", what, got, keys)
	}
}

func (d *device) add(name string) {
	d.t.Helper()
	must(0, d.s.Add(&token{name, "v"}))(d.t)
}

func newDevice(t *testing.T, wall time.Time, right bool) *device {
	d := &device{t: t, dev: devicetest.New(wall), path: newPath(t)}
	d.dev.Set(wall, right)
	d.open()
	return d
}

// TestExpiryOverRestarts: the time that a process was not running counts, and so does
// sleep. Entries that have expired in that time are removed when the store is opened.
func TestExpiryOverRestarts(t *testing.T) {
	d := newDevice(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), true)
	d.add("a")
	d.dev.Pass(40 * time.Minute)
	d.add("b")
	d.open()
	d.is("after 40 minutes", "[a=v b=v]", "[a b]")
	d.dev.Pass(21 * time.Minute)
	if keys := d.s.ListKeys(); len(keys) != 2 {
		t.Error("what nobody reads stays, as in client-go: ", keys)
	}
	d.open()
	if keys := d.s.ListKeys(); fmt.Sprint(keys) != "[b]" {
		t.Error("opening has left ", keys)
	}
	d.is("after 61 minutes", "[b=v]", "[b]")
	d.dev.Pass(40 * time.Minute)
	d.is("after 101 minutes", "[]", "[]")
}

// TestExpiryAndClocks: the wall clock may be set at will within a boot. Across a reboot
// an entry is served if the clock was right then and is now, hidden while its age may
// become known, and removed once it cannot.
func TestExpiryAndClocks(t *testing.T) {
	right := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wrong := time.Unix(1000, 0)
	t.Run("set within the boot", func(t *testing.T) {
		d := newDevice(t, wrong, false)
		d.add("a")
		d.dev.Pass(10 * time.Minute)
		d.dev.Set(right, true)
		d.open()
		d.add("b")
		d.is("set forth", "[a=v b=v]", "[a b]")
		d.dev.Set(wrong, false)
		d.open()
		d.add("c")
		d.dev.Pass(45 * time.Minute)
		d.is("set back", "[a=v b=v c=v]", "[a b c]")
		d.dev.Pass(10 * time.Minute)
		d.is("the first has expired", "[b=v c=v]", "[b c]")
		d.dev.Pass(10 * time.Minute)
		d.is("all have expired", "[]", "[]")
	})
	t.Run("rebooted with a clock that is right", func(t *testing.T) {
		d := newDevice(t, right, true)
		d.add("a")
		d.dev.Reboot(right.Add(50 * time.Minute))
		d.dev.Set(right.Add(50*time.Minute), true)
		d.open()
		d.is("50 minutes later", "[a=v]", "[a]")
		d.dev.Pass(11 * time.Minute)
		d.is("61 minutes later", "[]", "[]")
	})
	t.Run("rebooted, right later", func(t *testing.T) {
		d := newDevice(t, right, true)
		d.add("old")
		d.dev.Pass(50 * time.Minute)
		d.add("young")
		d.reboot(wrong)
		d.is("not known yet", "[]", "[old young]")
		d.add("new")
		if _, exists, err := d.s.GetByKey("young"); exists || err != nil {
			t.Error(exists, err)
		}
		d.is("not known yet", "[new=v]", "[new old young]")
		d.open()
		d.is("opened again", "[new=v]", "[new old young]")
		d.dev.Set(right.Add(61*time.Minute), true)
		d.open()
		d.is("known", "[new=v young=v]", "[new young]")
	})
	t.Run("rebooted, stored by a wrong clock", func(t *testing.T) {
		d := newDevice(t, wrong, false)
		d.add("a")
		d.reboot(wrong)
		if keys := d.s.ListKeys(); len(keys) != 0 {
			t.Error("its age will never be known, and it is still there: ", keys)
		}
		d.add("b")
		d.is("in the second boot", "[b=v]", "[b]")
	})
}

// TestKeptForEver: without a TTL an entry is served at any age, even an unknown one.
func TestKeptForEver(t *testing.T) {
	dev := devicetest.New(time.Unix(1000, 0))
	path := newPath(t)
	for i := range 3 {
		db := open(t, path, boltstore.Options{Clock: dev})
		s := must(stores.NewTTLStore(claim(t, db), 0))(t)
		if n := len(s.List()); n != i {
			t.Fatalf("%d entries in boot %d", n, i)
		}
		must(0, s.Add(&token{fmt.Sprint(i), "v"}))(t)
		closeDB(t, db)
		dev.Reboot(time.Unix(1000, 0))
	}
}

// TestOwnPolicy: a policy may judge entries by their content alone. An entry that it lets
// expire while the age is unknown is hidden.
func TestOwnPolicy(t *testing.T) {
	dev := devicetest.New(time.Unix(1000, 0))
	s := must(stores.NewExpirationStore(claim(t, open(t, newPath(t), boltstore.Options{Clock: dev})),
		policyFunc(func(e *cache.TimestampedEntry) bool {
			if dev.Since(e.Timestamp) < 0 || dev.Since(e.Timestamp) > time.Minute {
				t.Errorf("stored at %s", e.Timestamp)
			}
			return e.Obj.(*token).Value == "bad"
		})))(t)
	for _, v := range []string{"bad", "good"} {
		must(0, s.Add(&token{v, v}))(t)
	}
	if got := text(s.List()); got != "[good=good]" || len(s.ListKeys()) != 1 {
		t.Error(got, s.ListKeys())
	}
}

type policyFunc func(*cache.TimestampedEntry) bool

func (f policyFunc) IsExpired(e *cache.TimestampedEntry) bool { return f(e) }

// TestStoredAgainMeanwhile: an entry that is stored while a read finds the old one
// expired stays, however the two meet.
func TestStoredAgainMeanwhile(t *testing.T) {
	var s cache.Store
	again := func() {}
	s = must(stores.NewExpirationStore(newClaim(t), policyFunc(func(e *cache.TimestampedEntry) bool {
		if e.Obj.(*token).Value != "old" {
			return false
		}
		again()
		return true
	})))(t)
	reads := map[string]func(){
		"Get":  func() { s.GetByKey("a") }, //nolint:errcheck // what is there afterwards counts
		"List": func() { s.List() },
	}
	for name, read := range reads {
		must(0, s.Add(&token{"a", "old"}))(t)
		again = func() { must(0, s.Add(&token{"a", "new"}))(t) }
		read()
		again = func() {}
		if obj, exists, err := s.GetByKey("a"); !exists || err != nil || obj.(*token).Value != "new" {
			t.Error(name, obj, exists, err)
		}
	}
}

// TestExpirationConcurrently: the entry stored last is served, even while readers remove
// expired ones.
func TestExpirationConcurrently(t *testing.T) {
	clk := fakeClock()
	s := must(stores.NewTTLStore(claim(t, open(t, newPath(t), boltstore.Options{Clock: clk})), time.Second))(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			name := fmt.Sprint(g % 2)
			for i := range 30 {
				if err := s.Add(&token{name, fmt.Sprint(g, i)}); err != nil {
					t.Error(err)
				}
				s.List()
				if _, _, err := s.GetByKey(name); err != nil {
					t.Error(err)
				}
				clk.Step(300 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	must(0, s.Add(&token{"0", "last"}))(t)
	must(0, s.Add(&token{"1", "last"}))(t)
	if got := text(s.List()); got != "[0=last 1=last]" {
		t.Error(got)
	}
	clk.Step(time.Second + 1)
	if got := text(s.List()); got != "[]" || len(s.ListKeys()) != 0 {
		t.Error(got, s.ListKeys())
	}
}

// otherToken is token in another version of a program.
type otherToken struct {
	token
	More int
}

// TestOtherType: a store whose entries' Go type has changed begins empty. Otherwise it
// would hide them, together with the new entries.
func TestOtherType(t *testing.T) {
	path := newPath(t)
	db := open(t, path, boltstore.Options{})
	must(0, claim(t, db).Add(&token{"a", "v"}))(t)
	closeDB(t, db)
	for i, lenient := range []bool{true, false, false} {
		db := open(t, path, boltstore.Options{})
		c, err := db.Claim(boltstore.Claim{Source: tokens, Example: &otherToken{}, ServeOutdated: lenient,
			KeyFunc: func(obj any) (string, error) { return obj.(*otherToken).Name, nil }})
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if i == 0 {
			n = len(must(stores.NewThreadSafeStore(c, nil))(t).List())
		} else {
			s := must(stores.NewTTLStore(c, time.Hour))(t)
			n = len(s.List())
			must(0, s.Add(&otherToken{token: token{"b", "v"}}))(t)
			if len(s.List()) != 1 {
				t.Error("what was stored is hidden")
			}
		}
		if want := []int{1, 0, 1}[i]; n != want {
			t.Errorf("opening %d: %d entries, want %d", i, n, want)
		}
		closeDB(t, db)
	}
}

// TestOutdatedOfAnInformer: an informer's objects stay, even if they have another Go
// type: the informer's list compares with them.
func TestOutdatedOfAnInformer(t *testing.T) {
	path := newPath(t)
	db := open(t, path, boltstore.Options{})
	must(0, claim(t, db).Add(&token{"a", "v"}))(t)
	closeDB(t, db)
	c, err := open(t, path, boltstore.Options{}).Claim(boltstore.Claim{Source: tokens, Example: &otherToken{}})
	if err != nil {
		t.Fatal(err)
	}
	c.Feed.ExpectProducer()
	must(stores.NewThreadSafeStore(c, nil))(t)
	if st := c.State(); st.Objects != 1 || st.Outdated == "" {
		t.Errorf("it was set aside: %+v", st)
	}
}

// TestSourceOfAnInformer: a store with expiry needs a source of its own.
func TestSourceOfAnInformer(t *testing.T) {
	db := informertest.Open(t)
	inf, err := informer.NewSharedIndexInformer(db,
		informertest.ListerWatcher(framework.NewFakeControllerSource(), &corev1.Pod{}), &corev1.Pod{},
		informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stores.NewTTLStore(inf.GetIndexer().(*boltstore.Claimed), time.Hour); err == nil ||
		!strings.Contains(err.Error(), "informer") {
		t.Error(err)
	}
}

// TestClosed: reads and writes of a closed file are errors, and lists are empty.
func TestClosed(t *testing.T) {
	db := open(t, newPath(t), boltstore.Options{})
	c := claim(t, db)
	s := must(stores.NewTTLStore(c, time.Hour))(t)
	must(0, s.Add(&token{"a", "v"}))(t)
	must(0, db.Close())(t)
	if _, exists, err := s.GetByKey("a"); exists || !errors.Is(err, boltstore.ErrClosed) {
		t.Error(exists, err)
	}
	if err := s.Add(&token{"a", "v"}); !errors.Is(err, boltstore.ErrClosed) {
		t.Error(err)
	}
	if len(s.List()) != 0 {
		t.Error("a list of a closed file")
	}
	if _, err := stores.NewTTLStore(c, time.Hour); !errors.Is(err, boltstore.ErrClosed) {
		t.Error(err)
	}
}

// TestManyEntries: lists and their removals go over more than one page of the file.
func TestManyEntries(t *testing.T) {
	clk := fakeClock()
	s := must(stores.NewTTLStore(claim(t, open(t, newPath(t), boltstore.Options{Clock: clk})), time.Minute))(t)
	var many []any
	for i := range 2500 {
		many = append(many, &token{Name: fmt.Sprint(i)})
	}
	must(0, s.Replace(many, "1"))(t)
	clk.Step(time.Minute)
	must(0, s.Add(&token{Name: "a later one"}))(t)
	if n := len(s.List()); n != 2501 {
		t.Errorf("%d entries", n)
	}
	clk.Step(1)
	if n := len(s.List()); n != 1 || len(s.ListKeys()) != 1 {
		t.Errorf("%d entries, and %d keys are left", n, len(s.ListKeys()))
	}
}
