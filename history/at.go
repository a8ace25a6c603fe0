package history

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// ErrUnknown: the file does not say how the object was then.
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

// At returns the object with that key as it was at the moment, nil if there was none. A
// resourceVersion asks for the last version that is not later, of those that the file was
// shown: a relist shows only the last of several changes. A time asks for what the file
// had then. The object is shared and must not be modified.
//
// At returns ErrUnknown where the journal does not reach, where a relist found a delete
// whose version nobody saw, and where versions cannot be compared. See [Of] for how far
// the journal reaches.
func At(s *boltstore.Store, key string, m Moment) (obj any, err error) {
	st := s.State()
	past := past{Moment: m, key: key}
	switch behind, err := past.later(st.ResourceVersion, st.Confirmed); {
	case !st.Synced:
		return nil, past.unknown("nothing has been read from the server yet")
	case err != nil:
		return nil, err
	case m.ResourceVersion != "" && !behind && m.ResourceVersion != st.ResourceVersion:
		return nil, past.unknown("the file has reached resourceVersion %s only", st.ResourceVersion)
	}
	// Before the journal: a change that comes between the two has an entry.
	current, exists, err := s.GetByKey(key)
	if err != nil {
		return nil, err
	}
	for e, err := range s.History("") {
		if err != nil {
			return nil, err
		}
		if past.floor.IsZero() {
			past.floor = e.Time
		}
		if e.Key != key {
			continue
		}
		if err := past.pass(e); err != nil {
			return nil, err
		}
	}
	switch {
	case past.passed:
		return past.end()
	case past.first != nil:
		return past.before()
	}
	return past.unchanged(current, exists, st.Confirmed)
}

// past is the way through the journal to a moment.
type past struct {
	Moment
	key   string
	floor time.Time        // of the journal's first entry
	first *boltstore.Entry // of the key, after the moment

	passed bool // an entry of the key
	was    any  // after it, nil for a delete
	gone   bool // a relist found the delete, whose version is not known
}

func (p *past) unknown(format string, args ...any) error {
	return fmt.Errorf("%s at %s: %w: %s", p.key, p.Moment, ErrUnknown, fmt.Sprintf(format, args...))
}

// later says whether a version, or else a time, lies after the moment.
func (p *past) later(version string, at time.Time) (bool, error) {
	if p.ResourceVersion == "" {
		return at.After(p.Time), nil
	}
	c, err := resourceversion.CompareResourceVersion(version, p.ResourceVersion)
	if err != nil {
		return false, p.unknown("it cannot be compared with resourceVersion %s; give a time", version)
	}
	return c > 0, nil
}

// pass notes an entry of the key. The last one that does not lie after the moment counts:
// versions and clocks may have gone back.
func (p *past) pass(e *boltstore.Entry) error {
	obj, err := e.Object()
	if err != nil {
		return err
	}
	d, unseen := obj.(cache.DeletedFinalStateUnknown)
	if unseen {
		obj = d.Obj
	}
	over, err := p.later(versionOf(obj, p.ResourceVersion), e.Time)
	switch {
	case err != nil:
		return err
	case over && p.first == nil:
		p.first = e
	case !over:
		p.passed, p.was, p.gone = true, obj, unseen
		if e.Type == cache.Deleted {
			p.was = nil
		}
	}
	return nil
}

// before answers by what the key's first entry says of the time before it.
func (p *past) before() (any, error) {
	prev, err := p.first.Previous()
	if err != nil {
		return nil, err
	}
	if p.ResourceVersion == "" {
		if p.floor.After(p.Time) {
			return nil, p.unknown("the journal goes back to %s", p.floor.UTC().Format(time.RFC3339))
		}
		return prev, nil
	}
	if prev == nil {
		return nil, p.unknown("the journal shows only that it was added later")
	}
	version := versionOf(prev, "")
	switch over, err := p.later(version, time.Time{}); {
	case err != nil:
		return nil, err
	case over:
		return nil, p.unknown("the journal goes back to its resourceVersion %s", version)
	}
	return prev, nil
}

// end answers by the last entry that was passed.
func (p *past) end() (any, error) {
	if p.gone && p.ResourceVersion != "" {
		return nil, p.unknown("a list found it deleted, and no resourceVersion says when")
	}
	return p.was, nil
}

// unchanged answers for an object that the journal does not have.
func (p *past) unchanged(current any, exists bool, confirmed time.Time) (any, error) {
	if !exists {
		current = nil
	}
	if p.ResourceVersion == "" {
		if !confirmed.After(p.Time) || !p.floor.IsZero() && !p.floor.After(p.Time) {
			return current, nil
		}
		return nil, p.unknown("the journal does not go back to then")
	}
	if !exists {
		return nil, p.unknown("neither the file nor its journal has it")
	}
	version := versionOf(current, "")
	switch over, err := p.later(version, time.Time{}); {
	case err != nil:
		return nil, err
	case over:
		return nil, p.unknown("the journal does not go back to then; the file has its resourceVersion %s", version)
	}
	return current, nil
}

// versionOf returns an object's resourceVersion, or a default if there is no object.
func versionOf(obj any, none string) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return none
	}
	return m.GetResourceVersion()
}
