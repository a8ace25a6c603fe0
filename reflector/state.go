package reflector

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// Phase is what a source is doing.
type Phase string

// The phases of a source.
const (
	PhaseStarting   Phase = "starting"    // nothing has been tried yet
	PhaseConnecting Phase = "connecting"  // the server is being asked, for the first time or since a watch has broken
	PhaseOffline    Phase = "offline"     // the server cannot be reached
	PhaseFailing    Phase = "failing"     // the server answers with errors, such as HTTP 500, or the disk does
	PhaseDenied     Phase = "denied"      // the server refuses access
	PhaseUnclaimed  Phase = "unclaimed"   // the file cannot keep it, so a strict informer never syncs
	PhaseRelisting  Phase = "relisting"   // reading all pages
	PhaseCatchingUp Phase = "catching up" // watching, behind what the server last stated
	PhaseLive       Phase = "live"        // watching, at or past what the server last stated
)

// State is what a source is doing and has done in this life of the process. It is one type
// because all of it is of one moment.
type State struct {
	Phase Phase `json:"phase"`
	// Reason is that of the last relist, or why the source is offline, failing or denied.
	Reason string `json:"reason,omitempty"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// ResourceVersion up to which everything has been accepted.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Confirmed is when the server last confirmed the cache, in this life of the process
	// or an earlier one, by the device's clock of that time. It is zero if it never has. The
	// clock may have been set since, or restarted with the device: see Age.
	Confirmed time.Time `json:"confirmed"`
	// Resumes counts the lists that the file has answered and from which a watch
	// went on. Relists counts the lists read from the server, for each reason.
	// LastRelist is the reason of the last one, LastRelistAt its end.
	Resumes      uint64            `json:"resumes"`
	Relists      map[string]uint64 `json:"relists,omitempty"`
	LastRelist   string            `json:"lastRelist,omitempty"`
	LastRelistAt time.Time         `json:"lastRelistAt,omitzero"`
	// Compared is when all objects were last compared with a list of the server's, in this
	// life or an earlier one, by the device's clock of that time. Differed counts those that
	// the watch had left out, as an audit or a disproof showed, see [boltstore.State].
	// Uncompared says that the watch goes on from the file, and nothing was compared since:
	// only the server's word that nothing was missed confirms.
	Compared   time.Time `json:"compared,omitzero"`
	Differed   uint64    `json:"differed,omitempty"`
	Uncompared bool      `json:"uncompared,omitempty"`
	// Listed counts the objects that the list under way has read, over all lives of a
	// first list. Remaining is how many the server says are left, or nil if it does
	// not say, as with selectors. While no list is under way, they are 0 and nil.
	Listed    uint64 `json:"listed,omitempty"`
	Remaining *int64 `json:"remaining,omitempty"`
	// BytesSaved adds up, for each resume in this life, the size of the source's records
	// as stored. The server might have compressed them.
	BytesSaved uint64 `json:"bytesSaved"`
	// Failed counts objects that could not be stored. Unstored counts those that
	// are still not in the file as the server has shown them, in this life or an
	// earlier one. They are read again. Degraded is why the last one is not stored.
	Failed   uint64 `json:"failed"`
	Unstored uint64 `json:"unstored,omitempty"`
	Degraded string `json:"degraded,omitempty"`
	// Unindexed counts the values that objects lack in indices since an index function
	// failed on them. It is called again.
	Unindexed uint64 `json:"unindexed,omitempty"`

	taken time.Time      // when the State was; zero: not by a source
	age   *time.Duration // then, nil: not known
}

// Age is how long before now the server last confirmed what is cached, for a now
// shortly after the State was taken. Within a boot of the machine it counts the
// time since boot, sleep included, whatever the wall clock does. The time for which a
// virtual machine was stopped counts once the clock is known to be right again. Across
// boots it counts by the wall clock, if that is known to be right now and was known to be
// right then. Otherwise the age is not known and ok is false, as it is if the
// server has never confirmed. See boltstore.Options.TrustClock.
func (s State) Age(now time.Time) (age time.Duration, ok bool) {
	switch {
	case s.taken.IsZero(): // made by hand
	case s.age == nil:
		return 0, false
	default:
		return *s.age + max(now.Sub(s.taken), 0), true
	}
	wall := now.Round(0).Sub(s.Confirmed.Round(0))
	return max(now.Sub(s.Confirmed), wall, 0), !s.Confirmed.IsZero() && wall >= 0
}

// StateOf is the State of a source that has not begun in this life of the process,
// by its file's clock.
func StateOf(file boltstore.State, now time.Time) State {
	return State{Phase: PhaseStarting, Confirmed: file.Confirmed, ResourceVersion: file.ResourceVersion,
		Degraded: cmp.Or(file.Degraded, file.UnstoredReason),
		Compared: file.Compared, Differed: file.Differed, Unstored: file.Unstored, Unindexed: file.Unindexed,
		taken: now, age: file.ConfirmedAge}
}

// Reasons of a relist.
const (
	ReasonFirst    = "first sync"
	ReasonExpired  = "version expired"
	ReasonRestored = "server restored to an earlier state"
	ReasonDamaged  = "damage in the file"
	ReasonCluster  = "another cluster"
	ReasonAudit    = "audit"
	// There is no version to go on from: the server gives lists none, or the
	// objects have been purged, or nothing shows that versions move with each
	// change.
	ReasonNoVersion = "no version"
	// Several watches in a row have ended with an error in place of their first
	// event, which the client may not be able to read.
	ReasonUnreadable = "watches end in errors"
	// Objects that a list or the watch has brought could not be stored.
	ReasonUnstored = "objects not stored"
	// The file differed from the server's list of the same version: the watch has left
	// out changes.
	ReasonDiffers = "differs from a list"
	// The server sends no bookmarks, and nothing else confirms the state.
	ReasonUnconfirmed = "no bookmarks"
)

// String is one line for a person.
func (s State) String() string {
	text := string(s.Phase)
	if s.Reason != "" {
		text += fmt.Sprintf(" (%s)", s.Reason)
	}
	if s.Degraded != "" {
		text += fmt.Sprintf(", degraded (%s)", s.Degraded)
	}
	return text
}
