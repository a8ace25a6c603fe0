package main

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/internal/serve"
)

// serves serves what others use: HTTP, the file's socket and its API, until the life ends.
// The mirror works without the socket, but not without what the flags ask for.
func (k *keeper) serves() {
	if k.http != "" {
		if err := k.stats.serve(k.ctx, k.http, &k.wg); err != nil {
			k.end(err)
			return
		}
	}
	defer k.socket(k.db)()
	closeAPI, err := k.api(k.ctx, k.db, k.cfg)
	if err != nil {
		k.end(err)
		return
	}
	defer closeAPI()
	<-k.ctx.Done()
}

// socket serves the file's socket until end is called. The mirror works without the
// socket, too.
func (m *mirror) socket(db *boltstore.DB) (end func()) {
	if m.noSocket {
		return func() {}
	}
	s, err := live.Serve(db, live.Options{Sources: m.stats.phases})
	if err != nil {
		m.logf("other commands cannot read the file while this one runs: %s", oneLine(err))
		return func() {}
	}
	return func() {
		if err := s.Close(); err != nil {
			m.logf("%s", oneLine(err))
		}
	}
}

// api serves the file's API, if asked for, until end is called.
func (m *mirror) api(ctx context.Context, db *boltstore.DB, cfg *rest.Config) (end func(), err error) {
	if !m.serve {
		return func() {}, nil
	}
	cluster, err := clusterOf(ctx, cfg)
	if err != nil {
		return nil, err
	}
	link, err := m.access.link(cfg, func(context.Context) []string { return serve.ClustersOf(db, cluster) })
	if err != nil {
		return nil, err
	}
	m.access.unsafe = m.db.unsafe
	stop, err := m.access.serve(serve.Own(db, m.access.options(cluster, m.logger())), link, m.db.path, m.logf)
	if err != nil {
		return nil, err
	}
	return func() {
		if err := stop(); err != nil {
			m.logf("%s", oneLine(err))
		}
	}, nil
}
