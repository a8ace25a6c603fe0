package reflector

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
)

// Options of a ListerWatcher. The zero value is a good default. It has the file's logger
// and clock.
type Options struct {
	// Source is set for a client that does not come from WrapConfig, and says which list
	// and watch it is. Default: what the ListerWatcher states, if it has a method
	// StatedSource() boltstore.Source, or it is learned from the client's transport.
	Source *boltstore.Source
	// Cluster names the cluster, where one file serves several.
	Cluster string
	// Compare is set to CompareDecoded for list functions that make something else of
	// the server's answer.
	Compare Compare
	// Confirm chooses what proves that nothing was missed while the program was down: a
	// bookmark, or a list beside it. It is set to ConfirmBookmark where every byte
	// counts, and to ConfirmList where HasSynced must come as soon as it can.
	Confirm Confirm
	// AuditEvery is set where a server may be restored unnoticed. It is how long after
	// the contents of all objects were last compared with the server they are compared
	// again, although the watch has brought all changes. Lists that compare versions
	// only do not put it off. It costs a list each time. Default 0, never.
	AuditEvery time.Duration
	// OnDenied is set to DeniedPurge where a program may no longer hold what it is no
	// longer allowed to read.
	OnDenied OnDenied
	// OnState is set to show or to log what the source is doing. It is called at each
	// change of phase, and must not block. A watch that breaks changes the phase only
	// if the next one cannot be opened.
	OnState func(State)

	// repair says what relists ask for.
	repair listMode
	// pageSize of relists, in objects. By default the first page has 250, and
	// later ones as many as suit 4 MiB and the link.
	pageSize int64
	// quietTimeout is how long a watch may bring neither event nor bookmark, and
	// a request not a byte. Then it is given up and the server asked. The server
	// sends a bookmark about once a minute; where it sends none the time grows to
	// ten minutes. At least 1 s. Default, and if negative, 90 s.
	quietTimeout time.Duration
	// retryUnstored is how long after an object could not be stored, by its
	// transform say, everything is listed again for it. The time doubles up to
	// ten minutes as long as there are such objects. Default 1 s.
	retryUnstored time.Duration
	// pageBytes is how large a page grows, in bytes of its unpacked answer. A
	// relist has two pages in memory. Default 2 MiB.
	pageBytes int64
	// confirmTimeout is the timeout of a watch that is behind what the server
	// states. The server sends a bookmark about 2 s before it, and none if it is
	// shorter than 3 s. At most a day. Default 3 s.
	confirmTimeout time.Duration
	// clock is set by tests. Default the file's.
	clock clock.Clock
}

// withDefaults fills in what is not set.
func (o Options) withDefaults() Options {
	o.pageBytes = cmp.Or(o.pageBytes, 2<<20)
	// The server counts seconds.
	o.confirmTimeout = min(max(cmp.Or(o.confirmTimeout, 3*time.Second), 1), 24*time.Hour)
	o.confirmTimeout = (o.confirmTimeout + time.Second - 1).Truncate(time.Second)
	if o.retryUnstored <= 0 {
		o.retryUnstored = time.Second
	}
	if o.quietTimeout <= 0 {
		o.quietTimeout = 90 * time.Second
	}
	o.quietTimeout = max(o.quietTimeout, time.Second)
	return o
}

// Identify returns the source that lw lists, as the options or lw say, or as it is
// learned from the client's transport, and then the server's address.
func (o Options) Identify(lw cache.ListerWatcher, example runtime.Object) (src boltstore.Source, server string, err error) {
	stated, states := lw.(interface{ StatedSource() boltstore.Source })
	if o.Source != nil {
		src = *o.Source
	} else if states {
		src = stated.StatedSource()
		src.FieldSelector = inOrder(src.FieldSelector)
	} else if src, server, err = Identify(context.Background(), lw, example); err != nil {
		return src, "", err
	}
	src.Cluster = cmp.Or(o.Cluster, src.Cluster)
	return src, server, nil
}

func init() {
	tuning.SetReflector = func(options any, t tuning.Reflector) {
		o := options.(*Options)
		o.pageSize = cmp.Or(t.PageSize, o.pageSize)
		o.quietTimeout = cmp.Or(t.QuietTimeout, o.quietTimeout)
		o.retryUnstored = cmp.Or(t.RetryUnstored, o.retryUnstored)
		if t.Metadata {
			o.repair = listMetadata
		}
	}
}
