package boltstore

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

func (m *storeModel) fold() {
	if m.fresh {
		return
	}
	for _, e := range journalFrom(m.t, m.s, m.seq+1) {
		m.seq = e.Seq
		obj, err := e.Object()
		m.must(err)
		prev, err := e.Previous()
		m.must(err)
		was := m.told[e.Key]
		m.say("told: %s %s %s", e.Type, e.Key, shortly(obj))
		switch e.Type {
		case cache.Deleted:
			if was == nil {
				m.fail("told that %s is gone, which was not there", e.Key)
			}
			delete(m.told, e.Key)
			delete(m.hidden, e.Key)
		case cache.Added:
			if was != nil && !m.hidden[e.Key] {
				m.fail("told that %s is new, and it was there", e.Key)
			}
			delete(m.hidden, e.Key)
			m.told[e.Key] = obj.(*corev1.ConfigMap)
		default:
			if was == nil || prev == nil || modelText(prev.(*corev1.ConfigMap)) != modelText(was) ||
				obj.(*corev1.ConfigMap).UID != was.UID {
				m.fail("told %s that %v became %v, and it was %s", e.Key, prev, obj, modelText(was))
			}
			m.told[e.Key] = obj.(*corev1.ConfigMap)
		}
	}
}

func (m *storeModel) check() {
	m.t.Helper()
	r, err := m.db.Check()
	if err != nil || !r.Sound() {
		m.fail("%+v %v", r, err)
	}
	if m.rnd.IntN(2) == 0 {
		waitMemory(m.s)
	}
	sameInMemory(m.t, m.s.source)
	st := m.s.State()
	if m.fresh && st.Synced {
		m.fresh = false
		p, err := m.s.Delivery.ServerPage(nil, 100)
		m.must(err)
		if p.Synced {
			for _, o := range p.Objects {
				m.told["ns/"+o.(*corev1.ConfigMap).Name] = o.(*corev1.ConfigMap)
			}
		}
		m.seq = st.Seq
		m.knowHidden()
	}
	m.fold()
	if m.owes || !st.Synced || m.s.Outdated() != "" || m.s.Err() != nil {
		return
	}
	noted := map[string]bool{}
	for _, text := range notedOf(m.t, m.s.Store) {
		key, _, _ := strings.Cut(text, " at ")
		noted[key] = true
	}
	p, err := m.s.Delivery.ServerPage(nil, 100)
	m.must(err)
	shown := server{}
	for _, o := range p.Objects {
		shown["ns/"+o.(*corev1.ConfigMap).Name] = o.(*corev1.ConfigMap)
	}
	read := server{}
	for _, o := range m.s.List() {
		read["ns/"+o.(*corev1.ConfigMap).Name] = o.(*corev1.ConfigMap)
	}
	for i := range 6 {
		key := fmt.Sprint("ns/o", i)
		told, is := m.told[key], shown[key]
		if m.hidden[key] {
			if is != nil || !noted[key] {
				m.fail("%s is hidden: shown %s, noted %v", key, modelText(is), noted)
			}
		} else if modelText(told) != modelText(is) {
			m.fail("%s: told %s, shown %s", key, modelText(told), modelText(is))
		}
		if !m.mayBe(key, told) && !noted[key] {
			m.fail("%s: told %s, the server had %s, and nothing is noted", key, modelText(told),
				modelText(m.state()[key]))
		}
		seen := read[key]
		if modelText(seen) != modelText(is) {
			m.fail("%s: read %s, shown %s", key, modelText(seen), modelText(is))
		}
		for _, name := range append([]string{"odd"}, m.late...) {
			if seen == nil {
				continue
			}
			for _, v := range []string{name + seen.ResourceVersion, strings.Fields(seen.Data["words"] + " x")[0]} {
				keys, err := m.s.IndexKeys(name, v)
				m.must(err)
				if slices.Contains(keys, key) || m.mayLack(key, name) {
					continue
				}
				again, err := m.s.IndexKeys(name, v) // the function may have succeeded since
				m.must(err)
				if !slices.Contains(again, key) {
					m.fail("%s %s: index %s has %v under %s", key, modelText(seen), name, keys, v)
				}
			}
		}
	}
}

// mayLack says whether the index may lack the key: its function has failed since the index was
// built, or readers who look without the index meet the failure.
func (m *storeModel) mayLack(key, name string) bool {
	now := m.s.metaNow()
	return now.Indices[name].Failed > 0 || !m.s.indices.built(now, name) &&
		m.bad.Load() == strings.TrimPrefix(key, "ns/")
}
