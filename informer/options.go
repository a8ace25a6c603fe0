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

// Options of an informer, which uses the file's logger and clock. The zero value is a
// good default.
type Options struct {
	// ResyncPeriod is how often handlers are told every object again, at least a second.
	// Set it for handlers that compare with something outside from time to time. Handlers
	// may have periods of their own. 0 or less: no resync.
	ResyncPeriod time.Duration
	// Indexers are the indices for ByIndex. IndexVersions has a version for each name.
	// While the version is the same, stored index values are used as they are: raise it
	// whenever the function, or a setting that it depends on, changes, or the file keeps the
	// old values. An index without a version is built again at each start, from the file.
	Indexers      cache.Indexers
	IndexVersions map[string]string
	// Transform changes each object before it is stored, to drop fields that the program
	// does not need. Change TransformVersion whenever Transform changes: objects stored
	// under another version are read again. The default version is the executable's build
	// id, so each new build costs a full list. If Transform depends on settings, such as
	// flags, the version must have these, too: the same build takes the file's objects as
	// they are. Transform must accept objects that it or
	// its predecessor has returned, as client-go's must: it is applied to the last states
	// of objects that are gone, for handlers.
	Transform        cache.TransformFunc
	TransformVersion string
	// MaxStaleness is for programs that must start without a link. The file's contents
	// count as synced if the server confirmed them less than that long ago and every
	// object could be stored. Negative: at any age, and even without some objects. A
	// source that was never listed whole, is damaged, or is stored under another Go type
	// or transform never counts. Default 0: the server must confirm the contents first.
	MaxStaleness time.Duration
	// ServeOutdated is for programs that are upgraded while offline. Objects that were
	// stored under another structure of their Go type, or another transform, are served
	// until they have been read again; see boltstore.Claim.
	ServeOutdated bool
	// Codec encodes types that the default codec refuses; see boltstore.Claim.
	Codec codec.Codec
	// Reflector says which source it is, and how it is read from the server.
	Reflector reflector.Options
	// InformerName and InformerMetricsProvider publish the metrics that client-go's
	// informers publish under a name. These are the length of the queue, the time to hand
	// out popped items, and the store's version, which moves with changes. As in client-go,
	// the first informer of a resource has the name. The default provider is the
	// process's, see cache.SetInformerMetricsProvider.
	InformerName            *cache.InformerName
	InformerMetricsProvider cache.InformerMetricsProvider
	// ObjectDescription names the objects in the Reflector's log. Default: their type.
	ObjectDescription string
	// EndWhenMoved is for programs that then begin again with the file at the path. It
	// ends Run, in order, once the informer's file was removed, renamed, damaged or replaced
	// by another one (see boltstore.DB.Moved). DB.Err then says so. Default: the informer
	// goes on with its file, which no other program finds, or which is not written any more.
	EndWhenMoved bool

	// Strict is for programs that must not run on a cache in memory. ForControllerRuntime
	// cannot return an error. With Strict, an informer whose objects cannot be kept in
	// the file never syncs, and the watch error handler and State say why. Default:
	// client-go's informer, and an error in the log.
	Strict bool

	// handlerGrace is how long the informer keeps changes for an absent handler: after
	// the sync for the first one to come, and after its removal for a removed one. If the
	// process ends before that, the next life tells them. Default 30 s.
	handlerGrace time.Duration
	// backlogBytes bounds the entries in memory that handlers have yet to be told, for
	// all handlers together and counted with their objects. The rest is read from the
	// file, which takes more processor time. Default 6 MiB, more than one large commit.
	backlogBytes int
	// clock is for tests. Default the file's.
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

// transformVersion is the version of the transform that the file records.
func transformVersion(fn cache.TransformFunc, version string) string {
	switch {
	case fn == nil:
		return ""
	case version != "":
		return version
	}
	return "build " + buildid.Get()
}
