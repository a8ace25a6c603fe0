package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/reflector"
)

type belief struct {
	m       *turmoil
	s       *tsource
	name    string
	durable bool

	mu     sync.Mutex
	cond   sync.Cond
	frozen bool // the life has crashed
	life   int
	fail   bool
	there  map[string]*corev1.ConfigMap
	gone   map[types.UID]int // the life in which it was last told the delete of an object
	log    []string
	// excused are objects whose delete need not be told, since the file may have lost that
	// they were.
	excused map[types.UID]bool
	// ahead: file and server may both have lost the latest changes that it was told.
	ahead bool
}

// excuse excuses all present objects.
func (b *belief) excuse() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.there {
		b.excused[o.UID] = true
	}
}

func (b *belief) say(format string, a ...any) {
	b.log = append(b.log, fmt.Sprintf("%v ", b.m.time())+fmt.Sprintf(format, a...))
}

func keyOf(o *corev1.ConfigMap) string { return o.Namespace + "/" + o.Name }

// blife is a handler in one life.
type blife struct {
	*belief
	n int
}

var errGone = errors.New("gone")

// wakes returns when the handler no longer hangs. Its life may have ended. The caller
// holds mu.
func (l blife) wakes() error {
	for l.frozen && l.life == l.n {
		l.cond.Wait()
	}
	if l.life != l.n {
		return errGone
	}
	return nil
}

func (l blife) told(typ cache.DeltaType, obj any) error {
	b := l.belief
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := l.wakes(); err != nil {
		return err
	}
	if b.durable && b.fail {
		return errGone
	}
	unknown := false
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
		unknown = true
		if obj == nil {
			ns, name, _ := cache.SplitMetaNamespaceKey(d.Key) // MetaNamespaceKeyFunc made it
			obj = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		}
	}
	o := obj.(*corev1.ConfigMap)
	b.say("%s %v %s", typ, unknown, identity(o))
	if typ != cache.Deleted {
		b.m.meets(o, fmt.Sprintf("%s is told %s", b.name, typ))
	}
	if b.s.ns != "" && b.s.ns != o.Namespace {
		b.m.fault("%s is told %s of %s", b.name, typ, keyOf(o))
	}
	if typ == cache.Deleted && !b.m.restores && !b.s.purge && o.UID != "" {
		now := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
		if err := b.m.sim.Get(now); err == nil && now.UID == o.UID {
			b.m.fault("%s is told the delete of %s %s, which is there", b.name, keyOf(o), o.UID)
		}
	}
	if typ == cache.Deleted {
		if !b.durable && o.UID != "" && b.gone[o.UID] == l.n {
			b.m.fault("%s is told the delete of %s %s twice in a life", b.name, keyOf(o), o.UID)
		}
		b.gone[o.UID] = l.n
		delete(b.there, keyOf(o))
	} else {
		delete(b.gone, o.UID)
		b.there[keyOf(o)] = o
	}
	return nil
}

func (l blife) OnAdd(obj any, _ bool) { _ = l.told(cache.Added, obj) }   // a plain handler cannot return an error
func (l blife) OnUpdate(_, obj any)   { _ = l.told(cache.Updated, obj) } // as in OnAdd
func (l blife) OnDelete(obj any)      { _ = l.told(cache.Deleted, obj) } // as in OnAdd
func (l blife) HandleEvent(_ context.Context, e Event) error {
	if e.Reset {
		b := l.belief
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := l.wakes(); err != nil {
			return err
		}
		b.say("reset")
		clear(b.there)
		b.ahead = false
		return nil
	}
	for _, gone := range e.Deleted {
		if err := l.told(cache.Deleted, gone.Object); err != nil {
			return err
		}
	}
	if e.Object == nil {
		return nil
	}
	return l.told(cache.Added, e.Object)
}

// tsource is one source of the file.
func (m *turmoil) want(s *tsource) (map[string]*corev1.ConfigMap, error) {
	all, _, err := m.sim.List(&corev1.ConfigMap{})
	want := map[string]*corev1.ConfigMap{}
	for _, o := range all {
		c := o.(*corev1.ConfigMap)
		if s.ns != "" && c.Namespace != s.ns {
			continue
		}
		if m.trans > 0 {
			c.Data["trans"] = fmt.Sprint(m.trans)
		}
		want[keyOf(c)] = c
	}
	return want, err
}

func compare(want, got map[string]*corev1.ConfigMap) string {
	for k, o := range want {
		if g := got[k]; g == nil || !apiequality.Semantic.DeepEqual(o, g) {
			return fmt.Sprintf("%s: want %v, got %v", k, o, g)
		}
	}
	for k, g := range got {
		if want[k] == nil {
			return fmt.Sprintf("%s is not there: %v", k, g)
		}
	}
	return ""
}

// differs says how a source differs from the server: its store, and with
// handlers also its index and their beliefs.
func (m *turmoil) differs(s *tsource, handlers bool) string {
	want, err := m.want(s)
	if err != nil {
		return err.Error()
	}
	got := map[string]*corev1.ConfigMap{}
	for _, o := range s.inf.GetStore().List() {
		c := o.(*corev1.ConfigMap)
		got[keyOf(c)] = c
	}
	if d := compare(want, got); d != "" {
		return "store: " + d
	}
	if !handlers {
		return ""
	}
	values := map[string]map[string]*corev1.ConfigMap{}
	for key, o := range want {
		v := m.indexed(o)
		if values[v] == nil {
			values[v] = map[string]*corev1.ConfigMap{}
		}
		values[v][key] = o
	}
	for v, of := range values {
		objs, err := s.inf.GetIndexer().ByIndex("x", v)
		found := map[string]*corev1.ConfigMap{}
		for _, x := range objs {
			found[keyOf(x.(*corev1.ConfigMap))] = x.(*corev1.ConfigMap)
		}
		if d := compare(of, found); d != "" || err != nil || len(objs) != len(of) {
			return fmt.Sprintf("by the index value %s: %s, %d objects, %v", v, d, len(objs), err)
		}
	}
	if all := s.inf.GetIndexer().ListIndexFuncValues("x"); len(all) != len(values) {
		return fmt.Sprintf("the index has the values %v, want %v", all, slices.Sorted(maps.Keys(values)))
	}
	for _, b := range []*belief{s.plain, s.durable} {
		b.mu.Lock()
		believed := map[string]*corev1.ConfigMap{}
		for k, o := range b.there {
			if want[k] == nil && (b.excused[o.UID] || !b.durable && o.Data["c"] != fmt.Sprint(m.cluster)) {
				continue // of another cluster, or lost: its delete is not told
			}
			believed[k] = o
		}
		ahead := b.ahead
		b.mu.Unlock()
		if d := compare(want, believed); d != "" && !ahead {
			return b.name + ": " + d
		}
	}
	return ""
}

func (m *turmoil) calm() {
	m.room()
	m.pages.Store(-1)
	m.deny.Store(false)
	m.torn.Store(0)
	m.busy.Store(0)
	m.kube.Store(0)
	m.watchFail.Store(false)
	m.transFails.Store(false)
	m.indexFails.Store(false)
	m.sim.Stall(false)
	m.sim.SetBandwidth(0)
	for _, s := range m.sources {
		for _, b := range []*belief{s.plain, s.durable} {
			b.mu.Lock()
			b.fail = false
			b.mu.Unlock()
		}
	}
}

// settle ends all faults, and checks some hours later whether everything equals the
// server.
func (m *turmoil) settle() {
	m.say("settle")
	m.calm()
	for n := 0; n < 60; n++ {
		m.node()
	}
	after(3 * time.Hour)
	if m.kubelet() {
		after(3 * time.Hour)
	}
	m.mend()
	for i, s := range m.sources {
		if !s.inf.HasSynced() {
			m.fault("source %d has not synced: %s", i, s.inf.State())
		}
		if d := m.differs(s, true); d != "" {
			m.fault("source %d: %s: %+v", i, d, s.inf.State())
		}
		if e := s.inf.store.Upstream.Epoch(); e > uint64(m.cluster) && !m.maimed {
			m.fault("source %d: emptied %d times, there were %d other clusters", i, e, m.cluster)
		}
		if n := s.inf.store.State().Timeline; n > uint64(m.rewinds) && !m.maimed {
			m.fault("source %d: timeline %d, restored %d times", i, n, m.rewinds)
		}
		if st := s.inf.State(); st.Phase != reflector.PhaseLive && st.Phase != reflector.PhaseCatchingUp ||
			st.Degraded != "" || st.Unstored > 0 || st.Unindexed > 0 {
			m.fault("source %d: %s since %v, target %v, now %v %v %v", i, st, st.Since, st.ResourceVersion,
				time.Now(), m.sim.Revision(), st.Relists)
		}
	}
	if why := m.unsound(); why != "" {
		m.fault("the file is not sound: %s", why)
	}
}

// fresh waits for the server's confirmation and compares the store with the server.
func (m *turmoil) fresh() {
	s := m.sources[m.r.IntN(len(m.sources))]
	// on the bubble's clock, which takes no time: what was confirmed in this instant, before the
	// last change, is older than 0
	time.Sleep(time.Microsecond) // on the bubble's clock, see above
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+m.r.IntN(120))*time.Second)
	defer cancel()
	if err := s.inf.WaitForFresh(ctx, 0); err != nil || m.restores && !m.noticed || m.transFails.Load() ||
		s.inf.State().Unstored > 0 {
		m.say("fresh: %v", err)
		return
	}
	if d := m.differs(s, false); d != "" {
		m.fault("fresh, and %s: %+v", d, s.inf.State())
	}
}

// notice waits until all sources that are ahead have noticed a restore.
func (m *turmoil) notice(rev uint64) {
	if !m.noticed {
		return
	}
	m.calm()
	later := func(s *tsource) string {
		st := s.inf.store.State()
		for _, rv := range []string{st.ResourceVersion, s.inf.LastSyncResourceVersion(), st.NewestPage} {
			if n, _ := strconv.ParseUint(rv, 10, 64); n > rev && st.Synced &&
				!s.inf.store.Upstream.Facts().Restored { // "" is 0
				return fmt.Sprint(rv, " ", s.inf.State(), st.ResourceVersion, " epoch ", s.inf.store.Upstream.Epoch(),
					" cluster ", m.cluster)
			}
		}
		return ""
	}
	for i, s := range m.sources {
		for began := time.Now(); later(s) != ""; after(time.Second) {
			if time.Since(began) > time.Hour {
				m.fault("source %d has not noticed a restore to %d: %s", i, rev, later(s))
				return
			}
		}
	}
	m.say("noticed")
}
