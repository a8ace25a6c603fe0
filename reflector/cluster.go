package reflector

import "context"

// otherCluster finds out, once, whether the server is that of another cluster
// than the file's. If it is, the file's contents are set aside, since none of
// them has been deleted. Where a cluster does not tell its UID a new address
// alone is not another cluster.
func (s *Source) otherCluster(ctx context.Context) (bool, error) {
	s.mu.Lock()
	checked := s.checked
	s.mu.Unlock()
	if checked || s.o.Server == "" { // "": not a client whose requests we can see
		return false, nil
	}
	p := &probe{cluster: true}
	err := intercept(ctx, s.raw, p)
	if err == nil {
		err = p.err
	}
	if err != nil {
		return false, s.fail(ctx, err)
	}
	known := s.store.State()
	if p.uid != "" && known.ClusterUID != "" && p.uid != known.ClusterUID {
		if err := s.journal.Flush(ctx); err != nil {
			return false, err
		}
		if err := s.store.SetAside(); err != nil {
			return false, err
		}
		s.o.Logger.Info("Another cluster answers, what was cached is set aside", "source", s.store.Source().String(),
			"server", s.o.Server, "clusterUID", p.uid, "before", known.ClusterUID)
	} else if known.Synced && known.Server != s.o.Server {
		if err := s.store.SetServer(s.o.Server); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked, s.clusterUID = true, p.uid
	return known.Synced && !s.store.State().Synced, nil
}

// moved says whether the server's address is not the one that the file was
// read from, so that it may be another cluster.
func (s *Source) moved() bool {
	st := s.store.State()
	return s.o.Server != "" && st.Synced && st.Server != "" && st.Server != s.o.Server
}
