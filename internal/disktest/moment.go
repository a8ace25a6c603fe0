package disktest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Moment is a folder at one time.
type Moment struct {
	names, durable map[string]*File
	files          map[*File]content
	doing          string
	synced         bool // the transaction under way, if there is one, is synced
}

type content struct{ certain, now []byte }

// Moment is the present one.
func (d *Disk) Moment() (*Moment, error) {
	now, err := d.Names()
	if err != nil {
		return nil, err
	}
	m := &Moment{names: now, durable: d.Durable, files: map[*File]content{}, doing: d.Doing(), synced: d.Synced ||
		d.last == "commit" || d.last == committing}
	for _, names := range []map[string]*File{now, d.Durable} {
		for _, f := range names {
			c := content{}
			if c.now, err = f.Content(); err != nil {
				return nil, err
			}
			if c.certain = f.synced; f.all {
				c.certain = c.now
			}
			m.files[f] = c
		}
	}
	return m, nil
}

// Doing is the operation that was about to begin.
func (m *Moment) Doing() string { return m.doing }

// State is a folder as it was left.
type State struct {
	Names map[string]*File
	Files map[*File][]byte
}

// Make puts the state into another folder.
func (s State) Make(dir string) error {
	at := map[*File]string{}
	for name, f := range s.Names {
		path := filepath.Join(dir, name)
		var err error
		if first, again := at[f]; again {
			err = os.Link(first, path)
		} else {
			at[f] = path
			err = os.WriteFile(path, s.Files[f], 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// page is the size of bbolt's pages, which it writes one after the other.
const page = 4096

// Killed is the folder if the process ends at that moment or, unless then is nil, at any
// time until then.
func (m *Moment) Killed(then *Moment, r *rand.Rand) State {
	s := State{m.names, map[*File][]byte{}}
	for f, c := range m.files {
		s.Files[f] = c.now
	}
	if then == nil {
		return s
	}
	if r.IntN(2) == 0 {
		s.Names = then.names
	}
	for f, c := range then.files {
		was, ok := s.Files[f]
		if !ok {
			s.Files[f] = c.now
			continue
		}
		next := resized(was, len(c.now))
		written := changed(next, c.now, page)
		for _, at := range written[:r.IntN(len(written)+1)] {
			copy(next[at:], c.now[at:min(at+page, len(c.now))])
		}
		s.Files[f] = next
	}
	return s
}

// Cut is the folder if the power fails: any sectors and any names that are not on the
// disk for certain are lost.
func (m *Moment) Cut(then *Moment, r *rand.Rand) State {
	last := m
	if then != nil {
		last = then
	}
	s := State{Files: map[*File][]byte{}}
	s.Names = []map[string]*File{m.durable, m.names, last.names}[r.IntN(3)]
	for f, c := range last.files {
		was, ok := m.files[f]
		if !ok {
			was = c
		}
		s.Files[f] = cutFile(was, c.now, m.synced, r)
	}
	for f, c := range m.files {
		if s.Files[f] == nil {
			s.Files[f] = cutFile(c, c.now, false, r)
		}
	}
	return s
}

func cutFile(was content, next []byte, synced bool, r *rand.Rand) []byte {
	left, kept := bytes.Clone(next), r.IntN(101)
	sector := []int{512, page}[r.IntN(2)]
	lose := func(from []byte) {
		old := resized(from, len(next))
		for _, at := range changed(left, old, sector) {
			if synced && at < 2*page || r.IntN(100) >= kept {
				copy(left[at:], old[at:min(at+sector, len(old))])
			}
		}
	}
	if synced && r.IntN(2) == 0 { // the pages are synced, and the meta page is being written
		if r.IntN(2) == 0 {
			copy(left[:min(2*page, len(left))], resized(was.now, len(next)))
		}
		return left
	}
	lose(was.now)
	lose(was.certain)
	return left
}

func resized(b []byte, size int) []byte {
	out := make([]byte, size)
	copy(out, b)
	return out
}

// changed is where two contents of one size differ, the meta pages last.
func changed(a, b []byte, size int) (at []int) {
	for i := 0; i < len(a); i += size {
		if end := min(i+size, len(a)); !bytes.Equal(a[i:end], b[i:end]) {
			at = append(at, i)
		}
	}
	slices.SortStableFunc(at, func(x, y int) int {
		switch xm, ym := x < 2*page, y < 2*page; {
		case xm == ym:
			return 0
		case xm:
			return 1
		default:
			return -1
		}
	})
	return at
}
