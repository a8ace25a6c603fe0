package durable

import "github.com/kubewake/kubewake/boltstore"

// task is one thing to be told and acknowledged: a journal entry, a parked entry, an
// object of the replay, or a reset.
type task struct {
	entry   *boltstore.Entry // nil for a reset, or if only the file has it
	reset   bool
	initial bool   // an object of the replay
	added   bool   // told as Added, whatever the entry is
	parked  bool   // it is among the file's parked entries
	seq     uint64 // its own; 0 if that is not known
	first   uint64 // seq of the first entry in it; 0 unless from the journal
	last    uint64 // seq of the last entry in it
	more    bool   // the next task has the same entries: last is settled with it
	acked   bool
	kept    bool // nobody works on it; see Delivery.Keep
	parking bool // part of the commit under way
}

// away says whether only the file has it.
func (t *task) away() bool { return t.entry == nil && !t.reset }

// mergeable says whether it comes from the journal and may be collapsed with its
// neighbours.
func (t *task) mergeable() bool { return t.first > 0 && !t.parking && !t.added && t.entry != nil }

func (t *task) size() int {
	if t.entry == nil {
		return 0
	}
	return t.entry.Size()
}
