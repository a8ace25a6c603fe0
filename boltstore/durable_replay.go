package boltstore

import (
	"bytes"
	"errors"
	"time"

	"github.com/kubewake/kubewake/index"
)

// ReplayPage is a run of objects in the order of the file. Each entry adds one object,
// with the page's seq.
type ReplayPage struct {
	Entries []*Entry
	// Next, Seq, Epoch and Synced are as in ServerPage.
	Next   []byte
	Seq    uint64
	Epoch  uint64
	Synced bool
}

// Replay is ServerPage for durable handlers, as entries.
func (s *Claimed) Replay(from []byte, n int) (ReplayPage, error) {
	return s.replay(func(p *ReplayPage, g genTx) error {
		raws, next, err := s.reading().pageOf(g, from, n)
		p.Next = next
		errs := []error{err}
		for _, r := range raws {
			errs = append(errs, p.add(s.Store, r.Key, r.Open()))
		}
		return errors.Join(errs...)
	})
}

// ReplayOf is Replay for the objects of keys. Keys without one are left out.
func (s *Claimed) ReplayOf(keys []string) (ReplayPage, error) {
	return s.replay(func(p *ReplayPage, g genTx) error {
		var errs []error
		for _, key := range keys {
			k := index.AppendKey(nil, key)
			if v := g.shown(k); v != nil {
				errs = append(errs, p.add(s.Store, k, v))
			}
		}
		return errors.Join(errs...)
	})
}

func (s *Store) replay(fn func(p *ReplayPage, g genTx) error) (p ReplayPage, err error) {
	err = s.read(func(m *sourceMeta, _ sourceTx, g genTx) error {
		p = ReplayPage{Seq: m.Seq, Epoch: m.Epoch, Synced: g.Items != nil && m.listed()}
		if !p.Synced {
			return nil
		}
		return fn(&p, g)
	})
	return p, s.explained(err)
}

func (p *ReplayPage) add(s *Store, k, v []byte) error {
	key, r, err := s.owner.ParseRecord(k, v)
	if err != nil {
		return err
	}
	e := &Entry{Seq: p.Seq, Type: "Added", Key: key, Time: time.Unix(0, r.Stored), Born: r.Born, s: s, present: true, next: bytes.Clone(v)}
	p.Entries = append(p.Entries, e)
	return nil
}
