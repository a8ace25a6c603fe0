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

// Options of a Reflector, which uses the file's logger and clock. The zero value is a
// good default.
type Options struct {
	// Source says which list and watch it is. Set it for a client that does not come from
	// WrapConfig. Default: the ListerWatcher states it, if it has a method StatedSource()
	// boltstore.Source. Otherwise it is learned from the client's transport.
	Source *boltstore.Source
	// Cluster names the cluster. Set it if one file serves several.
	Cluster string
	// DecodeAll has the client decode all objects of a relist. Set it for list functions
	// that turn the server's answer into something other than a list of these objects.
	// Default: unchanged objects are left out of the answer, by their metadata, before it
	// is decoded. Clients whose config WrapConfig has not seen always decode all.
	DecodeAll bool
	// Confirm chooses how to prove that nothing was missed while the program was down: by
	// a bookmark, or by a list beside it, which also finds what a server's watch has left
	// out. Set it to ConfirmBookmark over a metered link, where every byte counts, and to
	// ConfirmList if HasSynced must come as soon as possible.
	Confirm Confirm
	// AuditEvery is within what time all objects are compared with a list, although the
	// watch has brought all changes: a server may have lost one, or may have been restored
	// unnoticed. An audit lists the objects' metadata, and comes at a random time, at least
	// half as long after the last comparison. Any list that was compared puts it off.
	// Default a day; with ConfirmBookmark, and for client-go's fakes, never. A negative
	// value means never.
	AuditEvery time.Duration
	// PurgeDenied deletes the objects from the file, except for journal entries, once the
	// server has refused them for a minute (401, 403, or 404 for a type that is gone).
	// Set it if a program must not hold objects that it is no longer allowed to read.
	// Handlers are told the deletes. Default: the objects are served, unconfirmed. In
	// either case the phase is PhaseDenied, and the error goes to the watch error handler.
	// Once access is back, handlers are told only the differences.
	PurgeDenied bool
	// OnState is called at each change of phase, to show or to log what the source is
	// doing. It must not block. A watch that breaks changes the phase only if the next
	// one cannot be opened.
	OnState func(State)

	// repair says what relists ask for.
	repair listMode
	// pageSize is the page size of relists, in objects. By default the first page has
	// 250, and later ones as many as fit 2 MiB and the link.
	pageSize int64
	// quietTimeout is how long a watch may bring neither event nor bookmark, and a
	// request no byte. After that it is given up, and the server is asked. The server
	// sends a bookmark about once a minute. If it sends none, the time grows to ten
	// minutes. At least 1 s. The default, and a negative value, mean 90 s. The watch of a
	// client-go fake is not given up by default.
	quietTimeout time.Duration
	// retryUnstored is how long after an object could not be stored, for example since
	// its transform failed, everything is listed again. The time doubles up to ten
	// minutes as long as there are such objects. Default 1 s.
	retryUnstored time.Duration
	// pageBytes is the size to which pages grow, in bytes of the unpacked answer. A
	// relist has two pages in memory. Default 2 MiB.
	pageBytes int64
	// confirmTimeout is the timeout of a watch that is behind the server's stated
	// version. The server sends a bookmark about 2 s before the timeout, and none if it
	// is shorter than 3 s. At most a day. Default 3 s.
	confirmTimeout time.Duration
	// clock is for tests. Default the file's.
	clock clock.Clock
}

// withDefaults fills in the options that are not set.
func (o Options) withDefaults() Options {
	o.pageBytes = cmp.Or(o.pageBytes, 2<<20)
	// The server counts seconds.
	o.confirmTimeout = min(max(cmp.Or(o.confirmTimeout, 3*time.Second), 1), 24*time.Hour)
	o.confirmTimeout = (o.confirmTimeout + time.Second - 1).Truncate(time.Second)
	if o.AuditEvery == 0 && o.Confirm != ConfirmBookmark {
		o.AuditEvery = 24 * time.Hour
	}
	if o.retryUnstored <= 0 {
		o.retryUnstored = time.Second
	}
	if o.quietTimeout <= 0 {
		o.quietTimeout = 90 * time.Second
	}
	o.quietTimeout = max(o.quietTimeout, time.Second)
	return o
}

// Identify returns the source that lw lists. The options or lw state it; otherwise it is
// learned from the client's transport, together with the server's address.
func (o Options) Identify(lw cache.ListerWatcher, example runtime.Object) (
	src boltstore.Source, server string, err error,
) {
	stated, states := lw.(interface{ StatedSource() boltstore.Source })
	if o.Source != nil {
		src = *o.Source
	} else if states {
		src = stated.StatedSource()
		inOrder(&src)
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
