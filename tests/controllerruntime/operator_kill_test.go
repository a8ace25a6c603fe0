package controllerruntime

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// TestKillOperator: whatever is killed at any time, the operator reconciles each object
// after its last change.
func TestKillOperator(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "one", "two")
	const rounds, names = 6, 20
	objects := map[string]*written{}
	for round := range rounds {
		at := o.mark()
		life := o.live(envDice + "=1")
		if round%2 == 0 { // the others may be killed while they start
			o.says(at, "SYNCED")
		}
		kill := time.After(time.Duration(200+rand.IntN(800)) * time.Millisecond)
		for killed := false; !killed; {
			select {
			case <-kill:
				life.kill()
				killed = true
				o.shown = o.shown || o.replayed()
			default:
				o.change(objects, names)
			}
		}
		for range 10 {
			o.change(objects, names)
		}
		t.Log("round", round, "lines", o.mark())
	}
	life := o.live()
	for _, w := range objects {
		o.says(w.from, w.line)
	}
	life.end()
}

// written is an object that was changed.
type written struct {
	made int    // the mark before it was created
	from int    // the mark before it was last changed
	line string // what must come
}

// change makes one random change.
func (o *operator) change(objects map[string]*written, names int) {
	ns, name := o.namespaces[rand.IntN(len(o.namespaces))], fmt.Sprint("o", rand.IntN(names))
	object := ns + "/" + name
	before := o.mark()
	w := objects[object]
	exists := w != nil && strings.HasPrefix(w.line, "FOUND")
	switch remove := rand.IntN(3) == 0; {
	case remove && exists:
		known := o.knows(w.made, object)
		w.from, w.line = before, o.remove(ns, name)
		if !known { // then no life can tell that it has gone
			delete(objects, object)
		}
	case remove:
	case exists:
		w.from, w.line = before, o.write(ns, name, fmt.Sprint(before))
	default:
		objects[object] = &written{before, before, o.write(ns, name, fmt.Sprint(before))}
	}
}

// replayed says whether all objects of the first lists are, or were, pending for the
// operator's handlers. Until then one that nobody came to may go without a word. No life is
// running.
func (o *operator) replayed() bool {
	db, err := boltstore.Open(o.path, boltstore.Options{ReadOnly: true})
	if err != nil {
		return false
	}
	states, err := db.States()
	for _, st := range states {
		if len(st.Handlers) == 0 || st.Handlers[0].Behind {
			err = errors.Join(err, errors.New("not yet"))
		}
	}
	return errors.Join(err, db.Close()) == nil && len(states) == len(o.namespaces)
}

// knows says whether the handlers must know an object that was created after a mark: a life
// came to it, or a later life than that of the time has listed it and synced, and they had
// been told all objects.
func (o *operator) knows(mark int, object string) bool {
	synced := 0
	for _, l := range o.since(mark) {
		if l == "SYNCED" {
			synced++
		}
		if strings.HasPrefix(l, "FOUND "+object+" ") {
			return true
		}
	}
	return synced > 1 && o.shown
}
