package controllerruntime

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// NewCluster is cluster.New with the cache in the file of a manager that NewManager has made.
// It wraps a copy of cfg. o.Reflector.Cluster names the cluster in the file, or else its host's
// path does; the name differs from the manager's. File.InMemory counts for the cluster, too.
// Its kinds come from the file while its server does not answer, as the manager's do. The
// manager starts and ends the cluster: do not add it.
func NewCluster(mgr manager.Manager, cfg *rest.Config, o informer.Options, options ...cluster.Option) (
	cluster.Cluster, error,
) {
	k, ok := mgr.(*kept)
	switch {
	case !ok:
		return nil, fmt.Errorf("controllerruntime: a %T has no file for the cluster: it takes a manager that "+
			"NewManager has returned", mgr)
	case cfg != nil && clusterName(o.Reflector.Cluster, cfg) == k.cluster:
		return nil, fmt.Errorf("controllerruntime: the manager's own cluster has the name %q in the file: give "+
			"this one another in Reflector.Cluster", k.cluster)
	}
	var misused error
	inFile := func(c *cluster.Options) {
		if c.Cache.NewInformer != nil {
			misused = errInformers
		}
		scheme := schemeOf(c.Cache, c.Scheme)
		c.Cache.NewInformer = k.apart(scheme, informer.ForControllerRuntime(k.db.DB, o))
		wake(&c.MapperProvider, &c.Cache, scheme, k.db.DB, o.Reflector.Cluster)
		c.NewCache = k.db.caches(c.NewCache, o.Strict)
	}
	if cfg != nil { // cluster.New says so
		cfg = reflector.WrapConfig(rest.CopyConfig(cfg))
	}
	c, err := cluster.New(cfg, append(slices.Clone(options), inFile)...)
	if err == nil && misused == nil {
		err = mgr.Add(c)
	}
	if err := errors.Join(misused, err); err != nil {
		return nil, err
	}
	return c, nil
}
