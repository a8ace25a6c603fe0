package boltstore

import "bytes"

// ServerObjects is how many objects the server has shown, own writes left aside.
func (s *Claimed) ServerObjects() (n uint64, err error) {
	err = s.read(func(m *sourceMeta, _ sourceTx, g genTx) error {
		n = m.Items.Count
		if m.Own.Count == 0 || g.Own == nil {
			return nil
		}
		own, items := g.Own.Cursor(), g.Items.Cursor()
		for at, base := own.Seek(nil); at != nil; at, base = own.Next() {
			held, _ := items.Seek(at)
			switch {
			case bytes.Equal(base.Open(), noBase):
				n--
			case !bytes.Equal(held, at): // the program has deleted it
				n++
			}
		}
		return nil
	})
	return n, err
}
