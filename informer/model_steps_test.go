package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/seal"
)

func (m *model) step(o op) {
	s := m.server
	switch o.do {
	case "update", "create", "delete", "recreate":
		s.change(o.do, o.key)
	case "store":
		if !m.full {
			m.endOpen()
			m.check()
			m.writes = &o
			m.start()
		}
	case "bookmark":
		s.bookmark()
	case "refuse":
		s.excuse()
		m.faults.begin(&m.faults.transform, o)
	case "unindex":
		m.faults.begin(&m.faults.index, o)
	case "cure":
		m.faults.cure()
	case "resync":
		m.resync()
	case "stall", "fail", "later", "go on":
		m.observers[o.n%len(m.observers)].behave(o.do)
	case "answer":
		m.observers[o.n%len(m.observers)].answer(o.key)
	case "slow":
		m.observers[o.n%len(m.observers)].stuck(fmt.Sprint("o", o.key))
	case "add again":
		if !m.full {
			m.addAgain()
		}
	case "without":
		if m.second != nil && !m.full {
			m.endOpen()
			m.check()
			m.second.die()
			m.without = true
			m.start()
		}
	case "join":
		if m.late == nil {
			m.late = m.observe(false)
			m.join()
		}
	case "leave":
		if m.late != nil {
			m.late.behave("go on")
			if err := m.inf.RemoveEventHandler(m.lateReg); err != nil {
				m.t.Fatal(err)
			}
			m.forget(&m.late)
		}
	case "join durable":
		if m.second == nil && !m.full {
			m.second = m.observe(true)
			m.addDurable("second", m.second, true)
		}
	case "forget durable":
		if m.second != nil && !m.full {
			m.second.behave("go on")
			if err := m.inf.RemoveDurableHandler("second"); err != nil {
				m.t.Fatal(err)
			}
			m.forget(&m.second)
		}
	case "compact": // beside all that goes on
		_, err := m.db.Compact(context.Background(), nil)
		if m.elsewhere != nil {
			m.compactElsewhere(err)
		} else if err != nil && !m.full {
			m.t.Fatal(err)
		}
	case "rotate": // which takes effect in the next life
		if m.sealed {
			m.endOpen()
			if err := seal.Rotate(m.keyset()); err != nil {
				m.t.Fatal(err)
			}
			m.check()
			m.start()
			if m.db.KeysDue() {
				m.t.Fatal("the file has no new data key")
			}
		}
	case "fill disk":
		if m.disk {
			if err := fillDisk(m.dir); err != nil {
				m.t.Fatal(err)
			}
			m.full, m.large = true, true
			s.padded(50 << 10) // what is free in the file is not enough
		}
	case "free disk":
		if err := m.free(); err != nil {
			m.t.Fatal(err)
		}
	case "flash":
		m.flashed(o.key)
	case "move file":
		m.moveFile(o)
	case "file back":
		if m.elsewhere != nil && !m.full {
			m.fileBack()
			if err := m.db.AtPath(); err != nil {
				m.t.Fatal(err)
			}
		}
	case "rest":
		m.rest(o)
	case "settle":
		m.settle()
	case "replace": // events are missed, and too old to be had
		if !m.replaced {
			m.settle()
			m.replaced = true
			s.missed(o.key, 1+o.n)
		}
	case "crash":
		m.crash()
	case "reopen":
		m.endOpen()
		m.check()
		m.start()
	case "remove all":
		if m.grace == time.Hour && !m.full {
			m.removeAll(o)
		}
	case "away": // the server goes on meanwhile, and may forget
		m.endOpen()
		s.missed(o.key, o.n)
		m.start()
	case "confirm":
		m.confirmed(o)
	case "rewind":
		m.settle()
		m.end()
		s.rewind()
		for _, o := range m.observers {
			o.restored(true)
		}
		m.start()
		m.settle()
		for _, o := range m.observers {
			o.restored(false)
		}
	}
}

// store makes the program store or remove an object before it runs its informer.
func (m *model) store(o op) {
	store := m.inf.GetStore()
	obj, ok, err := store.GetByKey(fmt.Sprint("default/o", o.key))
	switch {
	case err != nil:
	case !ok:
		own := cm(fmt.Sprint("o", o.key), "the program's")
		m.files++
		own.UID = types.UID(fmt.Sprint("the program's ", m.files))
		err = store.Add(own)
	case o.n == 0:
		m.removed = append(m.removed, obj.(*corev1.ConfigMap).UID)
		for _, x := range m.observers {
			x.programRemoves(m.removed)
		}
		err = store.Delete(obj)
	default:
		own := obj.(*corev1.ConfigMap).DeepCopy()
		own.Data = map[string]string{"data": fmt.Sprint("the program's ", o.n)}
		err = store.Update(own)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	if m.inf.LastSyncResourceVersion() != "" && m.inf.store.State().ResourceVersion != "" {
		m.t.Fatal("the program has written, and the resume point is ", m.inf.store.State().ResourceVersion)
	}
}

// resync makes a resync due, for the late handler or the first.
func (m *model) resync() {
	m.inf.mu.Lock()
	for l := range m.inf.listeners {
		l.mu.Lock()
		l.resyncs.wanted = true
		l.mu.Unlock()
	}
	q := m.inf.queue
	m.inf.mu.Unlock()
	if q != nil {
		_ = q.Resync() // closed at worst
	}
}

// removeAll ends a life like a program that first removes its handlers, in any order,
// some of them behind. The next life owes each its missed changes.
func (m *model) removeAll(o op) {
	regs := []cache.ResourceEventHandlerRegistration{m.plainReg, m.durableReg}
	if o.n&1 > 0 {
		m.plain.behave("stall")
	}
	if m.late != nil {
		regs = append(regs, m.lateReg)
		if o.n&2 > 0 {
			m.late.behave("stall")
		}
	}
	m.server.change("update", o.key)
	m.server.change("delete", o.key)
	m.server.change("create", o.key/2)
	if o.n&4 > 0 {
		slices.Reverse(regs)
	}
	for _, reg := range regs {
		if err := m.inf.RemoveEventHandler(reg); err != nil {
			m.t.Fatal(err)
		}
		m.server.change("delete", o.key/2)
	}
	for _, x := range m.observers {
		x.leave()
	}
	m.server.change("create", o.key)
	if o.key&1 > 0 {
		m.crash()
		return
	}
	m.endOpen()
	m.check()
	m.start()
}

func (m *model) forget(o **observer) {
	for i, x := range m.observers {
		if x == *o {
			m.observers = append(m.observers[:i:i], m.observers[i+1:]...)
			break
		}
	}
	(*o).die()
	*o = nil
}

func (m *model) reopen() {
	m.end()
	m.check()
	m.start()
}

// crash goes on with the file as the last commit left it. Changes told after that commit
// count as not told.
func (m *model) crash() {
	for _, o := range m.observers {
		o.behave("freeze")
	}
	if err := m.free(); err != nil { // for the copy
		m.t.Fatal(err)
	}
	s, err := m.db.Snapshot()
	for _, o := range m.observers {
		o.die()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	file, err := io.ReadAll(s)
	if err := errors.Join(err, s.Close()); err != nil {
		m.t.Fatal(err)
	}
	m.end()
	m.lost = true
	if err := os.Remove(m.path); err != nil {
		m.t.Fatal(err)
	}
	m.files++
	m.path = filepath.Join(m.dir, fmt.Sprint(m.files, ".db"))
	if err := os.WriteFile(m.path, file, 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.start()
}
