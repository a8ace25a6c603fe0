package informer

import (
	"cmp"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/internal/buildid"
	"github.com/kubewake/kubewake/reflector"
)

// Options of an informer. The zero value is a good default.
type Options struct {
	// Source states which list/watch the ListerWatcher is. By default it is
	// learned from the client's transport, see reflector.WrapConfig.
	Source *boltstore.Source
	// Cluster is a name of the caller's for the cluster, needed only where one
	// file serves several.
	Cluster string
	// ResyncPeriod is the default for handlers, at least a second. 0 or less: no
	// resync.
	ResyncPeriod time.Duration
	// Indexers and their versions, see boltstore.Claim.
	Indexers      cache.Indexers
	IndexVersions map[string]string
	// Transform is applied to each object before it is stored. Its version
	// must change when it does, since objects stored under another version are
	// read anew; without one the executable's build id stands in, and each new
	// build costs a full list.
	Transform        cache.TransformFunc
	TransformVersion string
	// MaxStaleness lets what the file holds count as synced if the server
	// confirmed it less than that long ago and nothing of it could not be stored.
	// Negative: whatever its age.
	MaxStaleness time.Duration
	// ServeOutdated serves, until the server can be read anew, objects that
	// were stored under another structure of their Go type or another
	// transform; see boltstore.Claim.
	ServeOutdated bool
	// Codec for types with a form of their own, see boltstore.Claim.
	Codec codec.Codec
	// Reflector says how the source is read from the server. Its Server, Logger and
	// Clock are the informer's, whatever they say.
	Reflector reflector.Options
	// HandlerGrace is how long the informer keeps what a handler would have to
	// be told that is not there: after the sync for the first one to come, and
	// after its removal for a removed one. If the process ends meanwhile, the
	// next life tells it. Default 30 s.
	HandlerGrace time.Duration
	// EndWhenMoved ends Run, in order, once the file is no longer at its path: it
	// was removed, renamed or replaced by another one (see boltstore.DB.Moved).
	// DB.Err then says so. By default the informer goes on with the file it has,
	// which nobody else finds.
	EndWhenMoved bool
	// Logger. Default klog.Background().
	Logger *klog.Logger
	// Clock for tests.
	Clock clock.WithTicker

	// backlogBytes is how much of what handlers have yet to be told is kept in
	// memory, for all handlers together and counted with its objects. The rest is
	// read from the file, which takes more processor time. Default 8 MiB, more than
	// one large commit.
	backlogBytes int
}

func (o Options) withDefaults() Options {
	if o.ResyncPeriod = max(o.ResyncPeriod, 0); o.ResyncPeriod > 0 {
		o.ResyncPeriod = max(o.ResyncPeriod, minimumResyncPeriod)
	}
	o.backlogBytes = cmp.Or(o.backlogBytes, 8<<20)
	o.HandlerGrace = cmp.Or(o.HandlerGrace, 30*time.Second)
	if o.Logger == nil {
		l := klog.Background()
		o.Logger = &l
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
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
