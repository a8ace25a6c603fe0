package reflector

import (
	"cmp"
	"context"
	"errors"

	"github.com/kubewake/kubewake/boltstore"
)

// Which cluster answers is found out before anything that it says is believed,
// once after each time that the link was broken. It costs no request where the
// server's answer has named the flow schema that the file knows: that is an
// object of the cluster, with a UID of its own.

// identity is what has been found out.
type identity struct {
	clusterUID string
	other      bool // than the file's
	// sure: it is the same, or the file knows no UID. Otherwise nothing says that
	// it is another, and what it tells of itself is not noted.
	sure bool
}

var errNoCluster = errors.New("reflector: the cluster that answers has no kube-system yet, so that it cannot be told whether it is the same")

// otherCluster finds out whether the server is that of another cluster than the
// file's. If it is, the file's contents are set aside, since none of them has
// been deleted.
func (s *ListerWatcher) otherCluster(ctx context.Context) (bool, error) {
	s.mu.Lock()
	checked, by := s.checked, s.asking.server()
	s.mu.Unlock()
	if checked || s.o.Server == "" { // "": not a client whose requests we can see
		return false, nil
	}
	known := s.store.State()
	id, by, err := s.identify(ctx, known, by)
	switch {
	case err != nil:
		return false, s.fail(ctx, err)
	case id.other:
		if err := s.setAside(ctx, known, by); err != nil {
			return false, err
		}
	case known.Synced:
		s.noteServer(known, by, id.sure)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked, s.id = true, id
	return id.other && known.Synced, nil
}

// identify asks for the UID of kube-system, if it must, and returns what else
// that answer has told.
func (s *ListerWatcher) identify(ctx context.Context, known boltstore.State, by boltstore.Server) (identity, boltstore.Server, error) {
	by.Address = s.o.Server
	if by.FlowSchemaUID != "" && by.FlowSchemaUID == known.FlowSchemaUID {
		return identity{clusterUID: known.ClusterUID, sure: true}, by, nil
	}
	told, err := s.askCluster(ctx)
	if err != nil {
		return identity{}, by, err
	}
	if told.none && known.ClusterUID != "" {
		return identity{}, by, errNoCluster // it is one of the first things that a server makes
	}
	by.ClusterUID, by.CA = told.uid, cmp.Or(by.CA, told.ca)
	other := isOther(known, by)
	return identity{told.uid, other, other || told.uid != "" || known.ClusterUID == ""}, by, nil
}

func (s *ListerWatcher) askCluster(ctx context.Context) (clusterUID, error) {
	p := &probe{cluster: true}
	if err := intercept(ctx, s.raw, p); err != nil {
		return clusterUID{}, err
	}
	return p.told, p.err
}

// isOther says whether the cluster that answers is another one than what the
// file knows. Where its UID may not be read two of address, CA and flow schema
// must be others: each of them alone changes in the life of a cluster.
func isOther(known boltstore.State, by boltstore.Server) bool {
	if by.ClusterUID != "" && known.ClusterUID != "" {
		return by.ClusterUID != known.ClusterUID
	}
	others := 0
	for _, x := range [][2]string{{known.Server, by.Address}, {known.ServerCA, by.CA}, {known.FlowSchemaUID, by.FlowSchemaUID}} {
		if x[0] != "" && x[1] != "" && x[0] != x[1] {
			others++
		}
	}
	return others > 1
}

func (s *ListerWatcher) setAside(ctx context.Context, known boltstore.State, by boltstore.Server) error {
	if err := s.queue.Flush(ctx); err != nil {
		return err
	}
	if err := s.store.SetAside(); err != nil {
		return err
	}
	s.queue.Unconfirm(true)
	s.o.Logger.Info("Another cluster answers, what was cached is set aside", "source", s.store.Source().String(),
		"server", by.Address, "clusterUID", by.ClusterUID, "ca", by.CA, "serverBefore", known.Server, "clusterUIDBefore", known.ClusterUID, "caBefore", known.ServerCA)
	return nil
}

// noteServer keeps who answers beside what is cached, for the next time. Where
// that cannot be written the cluster is asked for again then.
func (s *ListerWatcher) noteServer(known boltstore.State, by boltstore.Server, sure bool) {
	if !sure {
		by = boltstore.Server{Address: by.Address}
	}
	if (by == boltstore.Server{
		Address:       known.Server,
		ClusterUID:    cmp.Or(by.ClusterUID, known.ClusterUID),
		FlowSchemaUID: cmp.Or(by.FlowSchemaUID, known.FlowSchemaUID),
		CA:            cmp.Or(by.CA, known.ServerCA),
	}) {
		return
	}
	if err := s.store.SetServer(by); err != nil {
		s.o.Logger.V(1).Info("Who answers could not be noted", "source", s.store.Source().String(), "err", err)
	}
}

// answered is what a relist notes of who has given its pages.
func (s *ListerWatcher) answered() boltstore.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.id.sure {
		return boltstore.Server{}
	}
	return s.asking.server()
}
