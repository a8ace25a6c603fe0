package informer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// place begins with an empty disk, which is a small one now and then.
func (m *turmoil) place(dir string) {
	if m.r.IntN(4) == 0 && smallDisk(dir) {
		m.mounted = dir
		m.t.Cleanup(func() {
			if err := removeDisk(dir); err != nil {
				m.t.Error(err)
			}
		})
	}
	first := filepath.Join(dir, "0")
	if err := os.Mkdir(first, 0o700); err != nil {
		m.t.Fatal(err)
	}
	m.watch(first)
}

func (m *turmoil) soon(ms int) time.Duration { return time.Duration(m.r.IntN(ms)) * time.Millisecond }

// fatal ends the program, and prints all its events.
func (m *turmoil) fatal(err error) {
	m.t.Helper()
	m.t.Fatalf("%v\n%s", err, m.story())
}

func (m *turmoil) story() string {
	m.logMu.Lock()
	s := fmt.Sprintf("restores %v, encrypted %v, memory %d, small disk %v:\n%s", m.restores, m.sealed, m.memory,
		m.mounted != "", strings.Join(m.log, "\n"))
	m.logMu.Unlock()
	for _, src := range m.sources {
		for _, b := range []*belief{src.plain, src.durable} {
			b.mu.Lock()
			s += fmt.Sprintf("\n%s:\n%s", b.name, strings.Join(b.log, "\n"))
			b.mu.Unlock()
		}
	}
	return s
}

// open opens the file. A damaged file is set aside then, and no other.
func (m *turmoil) open() {
	open := func() (err error) {
		m.db, err = boltstore.Open(m.path, m.fileOptions())
		if m.hurt && (errors.Is(err, boltstore.ErrKeyset) || errors.Is(err, boltstore.ErrForeign)) {
			m.lose(fmt.Sprint("all of it: ", err), true)
			if err := os.Rename(m.path, m.path+".away"); err != nil {
				return err
			}
			m.db, err = boltstore.Open(m.path, m.fileOptions())
		}
		return err
	}
	m.disk.mu.Lock()
	m.disk.disk.Synced = m.synced
	m.disk.mu.Unlock()
	m.try("open", open)
	if a := m.db.AsidePaths(); a != nil {
		m.say("set aside: %v", a)
		m.deaths["set aside"]++
		if !m.hurt && !m.maimed { // damage to contents of another cluster is met when these are copied
			m.fault("set aside: %v", a)
		}
		m.lose("set aside", false)
	}
}

// try tries it again when there is room.
func (m *turmoil) try(what string, do func() error) {
	err := do()
	if err != nil && m.isFull() {
		m.say("%s: %v", what, err)
		m.deaths["no room to "+what]++
		m.room()
		err = do()
	}
	if err != nil {
		m.fatal(fmt.Errorf("%s: %w", what, err))
	}
}

func (m *turmoil) isFull() bool { return m.filled || m.disk.full.Load() > 0 }

// room makes room on the disk again.
func (m *turmoil) room() {
	m.disk.full.Store(0)
	if !m.filled {
		return
	}
	m.filled = false
	if err := freeDisk(m.mounted); err != nil {
		m.fatal(err)
	}
}

// fill fills the disk: no operation finds room, or some do not, or a commit or copy ends in
// the middle.
func (m *turmoil) fill() {
	if m.isFull() {
		return
	}
	if m.mounted != "" && m.r.IntN(3) > 0 {
		err := fillDisk(m.mounted)
		if err == nil {
			m.filled = true
			filler := filepath.Join(m.mounted, "filler")
			var st os.FileInfo
			if st, err = os.Stat(filler); err == nil {
				err = os.Truncate(filler, st.Size()-int64(m.r.IntN(16))<<12)
			}
		}
		if err != nil {
			m.fatal(err)
		}
	} else {
		m.disk.mu.Lock()
		m.disk.refused = 0 // earlier ones may be long ago
		m.disk.mu.Unlock()
		m.disk.full.Store([]int64{3, 10}[m.r.IntN(2)])
	}
	m.say("full: %v, or %d of ten operations", m.filled, m.disk.full.Load())
	m.deaths["full"]++
	m.change()
	after(m.soon(30_000))
	m.disk.mu.Lock()
	refused := m.disk.refused
	m.disk.mu.Unlock()
	if m.db != nil && m.disk.full.Load() == 10 && refused > 0 && m.db.Err() == nil {
		m.fault("%d transactions were refused, and Err does not say so: %s", refused, m.disk.stack())
	}
}

// convert makes the next life encrypt the file, or decrypts it.
func (m *turmoil) convert() {
	if m.db != nil || m.isFull() || m.hurt {
		return
	}
	if m.sealed {
		m.say("decrypt")
		if err := boltstore.Decrypt(m.path, m.fileOptions()); err != nil && !errors.Is(err, os.ErrNotExist) {
			m.fatal(err)
		}
		if m.disk.dead.Load() {
			return // it may be encrypted
		}
	}
	m.sealed = !m.sealed
}

// kubelet begins another life if the program has met damage in the file's pages, and says
// whether it does.
func (m *turmoil) kubelet() bool {
	if m.db == nil || !errors.Is(m.db.Err(), boltstore.ErrDamaged) {
		return false
	}
	m.deaths["damage met"]++
	m.end()
	m.start()
	return true
}

// mend makes another boot verify the file, since it may have damage that nothing has met.
func (m *turmoil) mend() {
	if !m.hurt {
		return
	}
	m.maimed = true
	if why := m.unsound(); why != "" {
		m.say("not sound: %s", why)
		m.deaths["found by check"]++
		m.discard(false)
		m.boot++
		m.start()
		after(3 * time.Hour)
	}
	m.hurt, m.unsynced = false, false
	for _, s := range m.sources {
		want, err := m.want(s)
		if err != nil {
			m.fatal(err)
		}
		there := map[types.UID]bool{}
		for _, o := range want {
			there[o.UID] = true
		}
		for _, b := range []*belief{s.plain, s.durable} {
			b.mu.Lock()
			for uid := range b.excused {
				if there[uid] {
					delete(b.excused, uid) // the file has it again
				}
			}
			b.mu.Unlock()
		}
	}
}

// unsound returns the findings of Check. After damage some pages may stay unused.
func (m *turmoil) unsound() string {
	r, err := m.db.Check()
	if m.hurt || m.maimed {
		r.Problems = slices.DeleteFunc(r.Problems, func(p string) bool {
			return strings.Contains(p, "neither in use nor free")
		})
	}
	if err == nil && r.Sound() {
		return ""
	}
	return fmt.Sprintf("%+v %v", r, err)
}

func identity(o *corev1.ConfigMap) string {
	return fmt.Sprint(o.UID, " ", o.ResourceVersion, " ", o.Namespace, "/", o.Name, " ", o.Data["data"], " ",
		o.Data["c"], " ", crc32.ChecksumIEEE([]byte(o.Data["large"])))
}

// record notes that the server has had the object.
func (m *turmoil) record(o *corev1.ConfigMap) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.had[identity(o)] = true
}

// meets notes which handler or reader has met the object. The server must have had it.
func (m *turmoil) meets(o *corev1.ConfigMap, who string) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	if id := identity(o); !m.had[id] {
		m.strange[id] = who
	}
}

// strangers are objects that handlers and readers have met, and that never existed.
func (m *turmoil) strangers() {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	for id, who := range m.strange {
		if !m.had[id] { // it may have been met before its write had returned
			m.faults = append(m.faults, fmt.Sprintf("%s of %s, which never was", who, id))
		}
	}
	clear(m.strange)
}

// indexed is an object's value in the index.
func (m *turmoil) indexed(o *corev1.ConfigMap) string { return fmt.Sprint(m.index, o.Data["data"]) }

// look reads a source in all ways. No object is served that never existed, under another
// key or by a value that is not its own.
func (m *turmoil) look() {
	s := m.sources[m.r.IntN(len(m.sources))]
	objs := s.inf.GetStore().List()
	for i := range 14 {
		ns, name := m.name(i)
		key, value := ns+"/"+name, fmt.Sprintf("%d%d-%d", m.index, i%5, m.sim.Revision()-m.r.Uint64N(20))
		if o, ok, err := s.inf.GetStore().GetByKey(key); ok && err == nil {
			if is := keyOf(o.(*corev1.ConfigMap)); is != key {
				m.fault("%s is read by the key %s", is, key)
			}
			objs = append(objs, o)
		}
		found, _ := s.inf.GetIndexer().ByIndex("x", value) // fails beside damage; what is given must be right
		for _, o := range found {
			if o := o.(*corev1.ConfigMap); m.indexed(o) != value {
				m.fault("%s, of value %s, is found by %s", keyOf(o), m.indexed(o), value)
			}
		}
		objs = append(objs, found...)
	}
	for _, obj := range objs {
		m.meets(obj.(*corev1.ConfigMap), "a reader")
	}
}

// trouble makes a fault of the machine or the link.
func (m *turmoil) trouble() {
	up := m.db != nil
	switch k := m.r.IntN(20); {
	case k < 7:
		if up {
			m.die(m.r.IntN(2) == 0)
		}
	case k < 10:
		m.fill()
	case k < 12:
		m.say("room")
		m.room()
	case k < 14:
		if m.damages {
			if m.damage(); m.db != nil && m.r.IntN(2) == 0 {
				m.die(m.r.IntN(2) == 0)
			}
		}
	case k < 15:
		m.say("silence")
		m.sim.Mute()
	case k < 16:
		m.say("stall")
		m.sim.Stall(true)
		after(m.soon(120_000))
		if m.r.IntN(2) == 0 {
			m.sim.DropConnections()
		}
		m.sim.Stall(false)
	case k < 17:
		m.say("watches expire")
		m.sim.EndWatches(apierrors.NewResourceExpired("too old resource version"))
	case k < 18:
		m.side.Store(m.r.Int64N(3))
		m.torn.Store(1 + m.r.Int64N(2000))
		m.say("answers to %d end after %d bytes", m.side.Load(), m.torn.Load())
	default:
		m.side.Store(m.r.Int64N(3))
		m.busy.Store([]int64{429, 500, 503, 504}[m.r.IntN(4)])
		m.say("answers to %d are %d", m.side.Load(), m.busy.Load())
		if m.r.IntN(2) == 0 {
			after(m.soon(200_000))
			m.busy.Store(0)
		}
	}
	if m.db != nil {
		m.look()
	}
}

// aimed says whether a request is of the sources that faults affect.
func (m *turmoil) aimed(q *http.Request) bool {
	web := strings.Contains(q.URL.Path, "/namespaces/web")
	return strings.Contains(q.URL.Path, "configmaps") && (m.side.Load() == 0 || web == (m.side.Load() == 1))
}

type whole struct{}

// linkFaults gives the simulator the faults in torn and busy.
func (m *turmoil) linkFaults() {
	m.sim.FailNext(func(q *http.Request) bool {
		return m.torn.Load() > 0 && q.Context().Value(whole{}) == nil && m.aimed(q)
	}, 1<<30, func(w http.ResponseWriter, q *http.Request) {
		m.sim.ServeHTTP(&tornAnswer{w, int(m.torn.Load())},
			q.WithContext(context.WithValue(q.Context(), whole{}, true)))
	})
	m.sim.FailNext(func(q *http.Request) bool {
		return m.busy.Load() > 0 && m.aimed(q)
	}, 1<<30, func(w http.ResponseWriter, q *http.Request) {
		kubesim.Answer(map[int64]*apierrors.StatusError{
			429: apierrors.NewTooManyRequests("later", 2),
			500: apierrors.NewInternalError(errors.New("no")),
			503: apierrors.NewServiceUnavailable("no"),
			504: apierrors.NewTimeoutError("no", 1),
		}[m.busy.Load()])(w, q)
	})
}

// tornAnswer breaks off after some bytes of a body.
type tornAnswer struct {
	http.ResponseWriter
	left int
}

func (w *tornAnswer) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func (w *tornAnswer) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b[:min(len(b), w.left)])
	if w.left -= n; w.left > 0 || err != nil {
		return n, err
	}
	w.Flush()
	panic(http.ErrAbortHandler)
}
