package informer

import (
	"cmp"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/internal/buildid"
	"github.com/kubewake/kubewake/reflector"
)

// Options of an informer. The zero value is a good default. The informer has the file's
// logger and clock.
type Options struct {
	// ResyncPeriod is for handlers that compare with something outside from time to
	// time: how often they are told every object again, at least a second. Handlers may
	// have periods of their own. 0 or less: no resync.
	ResyncPeriod time.Duration
	// Indexers are the indices for ByIndex. IndexVersions has a version for each name.
	// Under the same version nothing is computed: raise it with the function, or the
	// file keeps the old values. Without one each new build indexes the objects again,
	// locally.
	Indexers      cache.Indexers
	IndexVersions map[string]string
	// Transform drops what the program does not need, before an object is stored.
	// TransformVersion must change when it does, since objects stored under another
	// version are read again. Without one the executable's build id stands in, and
	// each new build costs a full list.
	Transform        cache.TransformFunc
	TransformVersion string
	// MaxStaleness is for programs that must start without a link. What the file holds
	// counts as synced if the server confirmed it less than that long ago and every
	// object could be stored. Negative: in any case. Default 0: the server must confirm
	// it.
	MaxStaleness time.Duration
	// ServeOutdated is for programs that are upgraded while offline. Objects that were
	// stored under another structure of their Go type, or another transform, are served
	// until the server can be read again; see boltstore.Claim.
	ServeOutdated bool
	// Codec encodes types that the default codec refuses; see boltstore.Claim.
	Codec codec.Codec
	// Reflector says which source it is, and how it is read from the server.
	Reflector reflector.Options
	// InformerName and InformerMetricsProvider publish what client-go's informers publish
	// under a name: the length of the queue, the time to hand out what was popped, and
	// the store's version, which moves with changes. As in client-go the first informer
	// of a resource has the name. Default for the provider: the process's, of
	// cache.SetInformerMetricsProvider.
	InformerName            *cache.InformerName
	InformerMetricsProvider cache.InformerMetricsProvider
	// ObjectDescription names the objects in the Reflector's log. Default: their type.
	ObjectDescription string
	// EndWhenMoved is for programs that begin again with the file that is at the path.
	// It ends Run, in order, once the informer's file was removed, renamed or replaced
	// by another one (see boltstore.DB.Moved). DB.Err then says so. Default: the
	// informer goes on with the file it has, which nobody else finds.
	EndWhenMoved bool

	// Strict is for programs that must not run on a cache in memory. What cannot be kept
	// in the file never syncs, where ForControllerRuntime has no way to return an error;
	// the watch error handler and State say why. Default: client-go's informer, and an
	// error in the log.
	Strict bool

	// handlerGrace is how long the informer keeps what a handler would have to be told
	// that is not there: after the sync for the first one to come, and after its removal
	// for a removed one. If the process ends meanwhile, the next life tells it. Default
	// 30 s.
	handlerGrace time.Duration
	// backlogBytes is how much of what handlers have yet to be told is kept in
	// memory, for all handlers together and counted with its objects. The rest is
	// read from the file, which takes more processor time. Default 6 MiB, more than
	// one large commit.
	backlogBytes int
	// clock is set by tests. Default the file's.
	clock clock.WithTicker
}

func (o Options) withDefaults() Options {
	if o.ResyncPeriod = max(o.ResyncPeriod, 0); o.ResyncPeriod > 0 {
		o.ResyncPeriod = max(o.ResyncPeriod, minimumResyncPeriod)
	}
	o.backlogBytes = cmp.Or(o.backlogBytes, 6<<20)
	o.handlerGrace = cmp.Or(o.handlerGrace, 30*time.Second)
	return o
}

// transformVersion is what the file records of the transform.
func transformVersion(fn cache.TransformFunc, version string) string {
	switch {
	case fn == nil:
		return ""
	case version != "":
		return version
	}
	return "build " + buildid.Get()
}
