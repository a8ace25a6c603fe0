package reflector

import (
	"context"

	"github.com/kubewake/kubewake/boltstore"
)

// otherCluster finds out whether the server is that of another cluster than the
// file's, once after each time that the link was broken. If it is, the file's
// contents are set aside, since none of them has been deleted. Where a cluster
// does not tell its UID a new address alone is not another cluster.
//
// It costs no request where the server's answer has named the flow schema that
// the file knows: that is an object of the cluster, with a UID of its own.
func (s *Source) otherCluster(ctx context.Context) (bool, error) {
	s.mu.Lock()
	checked := s.checked
	_, flow := s.asking.told()
	s.mu.Unlock()
	if checked || s.o.Server == "" { // "": not a client whose requests we can see
		return false, nil
	}
	known := s.store.State()
	uid := known.ClusterUID
	if flow == "" || flow != known.FlowSchemaUID {
		p := &probe{cluster: true}
		err := intercept(ctx, s.raw, p)
		if err == nil {
			err = p.err
		}
		if err != nil {
			return false, s.fail(ctx, err)
		}
		uid = p.uid
	}
	other := uid != "" && known.ClusterUID != "" && uid != known.ClusterUID
	if other {
		if err := s.journal.Flush(ctx); err != nil {
			return false, err
		}
		if err := s.store.SetAside(); err != nil {
			return false, err
		}
		s.o.Logger.Info("Another cluster answers, what was cached is set aside", "source", s.store.Source().String(),
			"server", s.o.Server, "clusterUID", uid, "before", known.ClusterUID)
	} else if known.Synced {
		s.noteServer(known, uid, flow)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked, s.clusterUID = true, uid
	return other && known.Synced, nil
}

// noteServer keeps who answers beside what is cached, for the next time. Where
// that cannot be written the cluster is asked for again then.
func (s *Source) noteServer(known boltstore.State, uid, flow string) {
	if known.Server == s.o.Server && (uid == "" || uid == known.ClusterUID) && (flow == "" || flow == known.FlowSchemaUID) {
		return
	}
	if err := s.store.SetServer(uid, s.o.Server, flow); err != nil {
		s.o.Logger.V(1).Info("Who answers could not be noted", "source", s.store.Source().String(), "err", err)
	}
}
