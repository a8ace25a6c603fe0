package reflector

import (
	"cmp"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options of a ListerWatcher. The zero value is a good default.
type Options struct {
	// Server is the address that the source is read from, as Identify returns
	// it; "" if unknown.
	Server string
	// PageSize of relists, in objects. By default the first page has 250, and
	// later ones as many as suit 4 MiB and the link.
	PageSize int64
	// Compare says how relists find out what has changed.
	Compare Compare
	// Repair says what relists ask for.
	Repair Repair
	// QuietTimeout is how long a watch may bring neither event nor bookmark, and
	// a request not a byte. Then it is given up and the server asked. The server
	// sends a bookmark about once a minute; where it sends none the time grows to
	// ten minutes. At least 1 s. Default, and if negative, 90 s.
	QuietTimeout time.Duration
	// AuditEvery is how long after the last full read everything is compared
	// with the server again, although the watch has brought all changes. It is
	// for servers that may have been restored unnoticed, and costs a list each
	// time. Default 0, never.
	AuditEvery time.Duration
	// RetryUnstored is how long after an object could not be stored, by its
	// transform say, everything is listed again for it. The time doubles up to
	// ten minutes as long as there are such objects. Default 1 s.
	RetryUnstored time.Duration
	// OnDenied says what becomes of the objects while the server refuses them.
	OnDenied OnDenied
	// OnState is called at each change of phase. It must not block. A watch that
	// breaks changes the phase only if the next one cannot be opened.
	OnState func(State)
	// Logger. Default klog.Background().
	Logger *klog.Logger
	// Clock for tests.
	Clock clock.Clock

	// pageBytes is how large a page grows, in bytes of its unpacked answer. A
	// relist has two pages in memory. Default 4 MiB.
	pageBytes int64
	// confirmTimeout is the timeout of a watch that is behind what the server
	// states. The server sends a bookmark about 2 s before it, and none if it is
	// shorter than 3 s. At most a day. Default 3 s.
	confirmTimeout time.Duration
}

// withDefaults fills in what is not set.
func (o Options) withDefaults() Options {
	o.pageBytes = cmp.Or(o.pageBytes, 4<<20)
	// The server counts seconds.
	o.confirmTimeout = min(max(cmp.Or(o.confirmTimeout, 3*time.Second), 1), 24*time.Hour)
	o.confirmTimeout = (o.confirmTimeout + time.Second - 1).Truncate(time.Second)
	if o.RetryUnstored <= 0 {
		o.RetryUnstored = time.Second
	}
	if o.QuietTimeout <= 0 {
		o.QuietTimeout = 90 * time.Second
	}
	o.QuietTimeout = max(o.QuietTimeout, time.Second)
	if o.Logger == nil {
		l := klog.Background()
		o.Logger = &l
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}
