package history

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/index"
)

// ErrUnknown: the file does not have the object's state at that moment.
var ErrUnknown = errors.New("not known")

// Moment is a moment in an object's past: a resourceVersion, or a time if that is empty.
// Times are those of commits, by the machine's clock.
type Moment struct {
	ResourceVersion string
	Time            time.Time
}

// IsZero says whether neither is set.
func (m Moment) IsZero() bool { return m.ResourceVersion == "" && m.Time.IsZero() }

func (m Moment) String() string {
	if m.ResourceVersion != "" {
		return "resourceVersion " + m.ResourceVersion
	}
	return m.Time.UTC().Format(time.RFC3339Nano)
}

// At returns the object with that key as it was at the moment, according to the server,
// nil if there was none. A resourceVersion asks for the file's last state of that
// version or an older one, a time for the file's state at that time. The object is shared
// and must not be modified. The error is ErrUnknown if the journal does not lead back to
// that state, or if the file has not reached that version or time.
func At(s *boltstore.Store, key string, m Moment) (obj any, err error) {
	at, err := stateAt(s, m)
	if errors.Is(err, boltstore.ErrTrimmed) || errors.Is(err, boltstore.ErrNotWhole) {
		err = unknown("%v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", key, m, err)
	}
	keys, objs, _, err := s.PageAt(at, key, index.AppendKey(nil, key), 1)
	switch {
	case errors.Is(err, boltstore.ErrTrimmed) || errors.Is(err, boltstore.ErrNotWhole):
		return nil, fmt.Errorf("%s at %s: %w", key, m, unknown("%v", err))
	case err != nil:
		return nil, err
	case len(keys) == 0 || keys[0] != key:
		return nil, nil
	}
	return objs[0], nil
}

func unknown(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnknown, fmt.Sprintf(format, args...))
}

// stateAt returns the state of a moment.
func stateAt(s *boltstore.Store, m Moment) (boltstore.Moment, error) {
	at, newest, err := s.Moment(m.ResourceVersion)
	if err != nil {
		return at, err
	}
	if m.ResourceVersion == "" {
		return stateThen(s, at, m.Time)
	}
	switch order, err := resourceversion.CompareResourceVersion(m.ResourceVersion, newest); {
	case m.ResourceVersion == newest:
	case err != nil:
		return at, unknown("it cannot be compared with resourceVersion %s; give a time", newest)
	case order > 0:
		return at, unknown("the file has reached resourceVersion %s only", newest)
	}
	return at, nil
}

// stateThen returns the state at a time: after the last entry that is not later. newest
// is the newest state.
func stateThen(s *boltstore.Store, newest boltstore.Moment, then time.Time) (boltstore.Moment, error) {
	at, since := newest, time.Time{}
	later, twice := false, false
	for e, err := range s.History("") {
		if err != nil {
			return at, err
		}
		if since.IsZero() {
			since, at.Seq, at.Version = e.Time, e.Seq-1, ""
		}
		switch {
		case e.Time.After(then):
			later = true
		case e.Seq <= newest.Seq:
			at.Seq, twice = e.Seq, later
		}
	}
	switch confirmed := s.State().Confirmed; {
	case twice:
		return at, unknown("the machine's clock was set back and had that time twice; give a resourceVersion")
	case since.IsZero() && confirmed.After(then):
		return at, unknown("the journal does not go back to then")
	case since.After(then):
		return at, unknown("the journal goes back to %s", since.UTC().Format(time.RFC3339))
	}
	return at, nil
}
