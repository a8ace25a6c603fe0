package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/kubewake/kubewake/boltstore"
)

// types finds out which sources are wanted, in the order of their arguments. It asks the
// file first, so that no server is needed. If the file does not say everything, it asks the
// server, once for all types, however long that takes.
func (k *keeper) types(ctx context.Context, w wanted) (known map[kept]named, order []kept, err error) {
	states, err := k.db.States()
	if err != nil {
		return nil, nil, err
	}
	states, known = inCluster(states, k.cluster), map[kept]named{}
	server := &served{cfg: k.cfg}
	for _, arg := range w.types {
		r, err := k.resolve(ctx, states, server, arg, w)
		if err != nil {
			return nil, nil, err
		}
		at := kept{gvr: r.gvr, selector: w.selector}
		if r.Scope == boltstore.ScopeNamespaced {
			at.namespace = w.namespace
		}
		if _, twice := known[at]; !twice { // pods and po are one type
			known[at], order = named{r, arg}, append(order, at)
		}
	}
	return known, order, nil
}

// resolve finds out which resource an argument means; it is one of those wanted.
func (k *keeper) resolve(
	ctx context.Context, states []boltstore.State, server *served, arg string, w wanted,
) (resource, error) {
	if r, ok := k.moved.Load(arg); ok {
		return r.(resource), nil
	}
	sources, err := inFile(states, arg)
	if err != nil {
		return resource{}, err
	}
	sources, certain := notNamed(sources, arg, w.types)
	stored, ok := known(sources)
	ok = ok && !elsewhere(arg, stored.gvr.GroupResource()) && (w.all || stored.Scope != "")
	if ok && certain {
		return stored, nil
	}
	k.offer()
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
	for said := ""; ; {
		r, err := server.resource(ctx, arg)
		switch {
		case ctx.Err() != nil:
			return resource{}, ctx.Err()
		case err == nil:
			return server.named(ctx, r)
		case ok:
			return stored, nil
		case meta.IsNoMatchError(err):
			return resource{}, unknownType(arg, "the server")
		case meta.IsAmbiguousError(err):
			return resource{}, fmt.Errorf("%q means several types; add the group: %w", arg, err)
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return resource{}, fmt.Errorf("the server does not let you ask for its types: %s", withHint(oneLine(err)))
		}
		if msg := withHint(oneLine(err)); msg != said {
			k.logf("%s: the server cannot be asked about this type; trying again: %s", arg, msg)
			said = msg
		}
		select {
		case <-ctx.Done():
			return resource{}, ctx.Err()
		case <-time.After(backoff.Step()):
		}
	}
}

// served has the types that a server has. It asks when it is first used, and again after an
// error.
type served struct {
	cfg    *rest.Config
	client discovery.DiscoveryInterface
	mapper meta.RESTMapper
}

func (s *served) resource(ctx context.Context, arg string) (resource, error) {
	if s.mapper == nil {
		client, err := discovery.NewDiscoveryClientForConfig(s.cfg)
		if err != nil {
			return resource{}, err
		}
		all := memory.NewMemCacheClient(client)
		s.client, s.mapper = all, restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(all), all,
			nil)
	}
	mapper := s.mapper
	r, err := during(ctx, func() (resource, error) { return fromServer(mapper, arg) })
	if err != nil {
		s.mapper = nil
	}
	return r, err
}
