package boltstore

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/listing"
)

// modelList is a list of a storeModel's server.
type modelList struct {
	objs    []runtime.Object
	at      int // events before it
	rv      string
	refused bool // some of its objects may have been refused, perhaps in an earlier life
	from    int  // objects that an earlier attempt has brought
}

// listNow is a list of the server as it is.
func (m *storeModel) listNow() *modelList {
	return &modelList{objs: m.srv.list(), at: len(m.log), rv: fmt.Sprint(m.rv)}
}

// beginList begins a relist, or goes on with a first list that was interrupted.
func (m *storeModel) beginList(o RelistOptions) (*Relist, *modelList) {
	o.TakeUp = !o.NewTimeline && m.begun != nil && m.rnd.IntN(4) > 0
	r, err := m.s.Upstream.BeginRelist(o)
	m.must(err)
	p, ok := r.TakenUp()
	if !ok {
		l := m.listNow()
		r.NewestPage(l.rv)
		m.ahead = max(m.ahead, l.at)
		return r, l
	}
	l := *m.begun[p.ResourceVersion]
	if l.from = len(l.objs); p.Continue != "" {
		l.from, err = strconv.Atoi(p.Continue)
		m.must(err)
	}
	return r, &l
}

// giveList gives the relist a page. done says how many objects have come with it.
func (m *storeModel) giveList(r *Relist, l *modelList, page []runtime.Object, done int) error {
	if !r.First() {
		return r.Page(page)
	}
	at := listing.Progress{ResourceVersion: l.rv, Newest: l.rv, Began: time.Now()}
	if done < len(l.objs) {
		at.Continue = fmt.Sprint(done)
	}
	if m.begun == nil {
		m.begun = map[string]*modelList{}
	}
	m.begun[l.rv] = l
	return r.PageTo(page, at)
}

// failing has the next writes fail once in so many calls.
func (m *storeModel) failing(once int) {
	if m.rnd.IntN(once) > 0 {
		return
	}
	left := 1 + m.rnd.IntN(2)
	m.say("%d writes fail", left)
	m.db.h.setHook(func(*bolt.Tx) error {
		if left--; left >= 0 {
			return errRefused
		}
		return nil
	})
}

func (m *storeModel) list() { m.relist(false) }

func (m *storeModel) relist(restored bool) {
	if restored = restored || m.owes; restored {
		m.owes = true
		m.must(m.s.Upstream.DropPartial())
	}
	setMaxCommitBytes(m.db, []int{1, 4000, 4 << 20}[m.rnd.IntN(3)])
	refuse := maps.Clone(m.refuse)
	o := RelistOptions{NewTimeline: restored, Content: m.rnd.IntN(4) == 0, OnError: func(runtime.Object, error) {},
		Transform: func(obj runtime.Object) (runtime.Object, error) {
			if refuse[obj.(*corev1.ConfigMap).Name] {
				return nil, errRefused
			}
			return obj, nil
		}}
	outdated, raw, abort := m.s.Outdated() != "", m.rnd.IntN(2) == 0, m.rnd.IntN(6) == 0
	r, l := m.beginList(o)
	defer m.noteHidden()
	defer m.db.h.setHook(nil)
	l.refused = l.refused || len(refuse) > 0
	raw = raw && r.ByMetadata()
	pageSize := []int{2, 2, 100}[m.rnd.IntN(3)]
	m.say("list of %d at %s from %d by %d: new timeline %v, content %v, outdated %v, raw %v, limit %d, abort %v, "+
		"refused %v, bad %v",
		len(l.objs), l.rv, l.from, pageSize, restored, o.Content, outdated, raw, m.db.opts.maxCommitBytes, abort,
		refuse, m.bad.Load())
	for done := l.from; done < len(l.objs) || done == 0; {
		page := l.objs[done:min(done+pageSize, len(l.objs))]
		if m.rnd.IntN(4) == 0 {
			m.change()
		}
		if done += len(page); raw {
			page = m.unlike(r, page)
		}
		m.failing(12)
		err := m.giveList(r, l, page, done)
		m.db.h.setHook(nil)
		if errors.Is(err, errRefused) {
			m.say("the page could not be written")
			return
		}
		m.must(err)
		switch m.rnd.IntN(40) {
		case 0, 1, 2, 3:
			m.addIndex()
		case 4, 5, 6:
			m.crash()
			m.restart()
			return
		}
		if len(l.objs) == 0 {
			break
		}
	}
	if abort && !restored || !m.commitList(r, l) {
		return
	}
	if outdated {
		for key := range m.told {
			m.hidden[key] = m.hidden[key] || refuse[strings.TrimPrefix(key, "ns/")]
		}
	}
	if n := m.s.Feed.UnstoredObjects(); n > 0 && !l.refused {
		m.fail("%d objects are noted after a list without", n)
	}
}

// noteHidden notes which objects an outdated list that has not ended has hidden.
func (m *storeModel) noteHidden() {
	m.must(m.s.view(func(_ *sourceMeta, src sourceTx) error {
		for key := range m.told {
			n := src.contents().notes.get(index.AppendKey(nil, key))
			m.hidden[key] = m.hidden[key] || n != nil && n.Record != nil
		}
		return nil
	}))
}

// knowHidden has handlers know the objects that the program wrote before the first list and
// that this list has hidden.
func (m *storeModel) knowHidden() {
	m.must(m.s.view(func(_ *sourceMeta, src sourceTx) error {
		for i := range 6 {
			key := fmt.Sprint("ns/o", i)
			if n := src.contents().notes.get(index.AppendKey(nil, key)); n != nil && n.Record != nil {
				obj, err := m.s.reader.decodeRaw(key, n.Record)
				m.must(err)
				m.told[key], m.hidden[key] = obj.(*corev1.ConfigMap), true
			}
		}
		return nil
	}))
}

// unlike returns the objects of a page of which the file has not the same version.
func (m *storeModel) unlike(r *Relist, page []runtime.Object) (want []runtime.Object) {
	for _, obj := range page {
		o := obj.(*corev1.ConfigMap)
		l := []listing.Object{{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID),
			ResourceVersion: o.ResourceVersion}}
		found, err := r.Compare(l)
		m.must(err)
		if found[0] == listing.MatchSame {
			m.must(r.Keep(l))
		} else {
			want = append(want, obj)
		}
	}
	return want
}

// commitList commits the list. It is tried again if it fails, or given up.
func (m *storeModel) commitList(r *Relist, l *modelList) bool {
	m.failing(4)
	_, err := r.Commit(l.rv, time.Now())
	for ; errors.Is(err, errRefused); _, err = r.Commit(l.rv, time.Now()) {
		if m.rnd.IntN(6) == 0 {
			m.say("the list is given up")
			m.db.h.setHook(nil)
			return false
		}
	}
	m.must(err)
	m.begun, m.owes, m.at, m.ahead = nil, false, l.at, 0
	m.must(m.s.builder.now(m.s.indices.set().fns)) // it is built beside other work
	return true
}

// setAside has another cluster answer.
func (m *storeModel) setAside() {
	m.say("another cluster")
	m.must(m.s.Upstream.Empty())
	m.told, m.hidden, m.seq, m.fresh, m.begun, m.owes = server{}, map[string]bool{}, m.s.State().Seq, true, nil, false
	m.srv, m.log, m.past, m.at, m.ahead, m.rv = server{}, nil, nil, 0, 0, m.rnd.IntN(m.rv+1)
	for range m.rnd.IntN(6) {
		m.change()
	}
}

// crash has the next life begin with the file as it is now.
func (m *storeModel) crash() {
	m.say("crash")
	snap, err := m.db.Snapshot()
	m.must(err)
	m.crashed, err = io.ReadAll(snap)
	m.must(errors.Join(err, snap.Close()))
}
