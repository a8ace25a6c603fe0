package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
)

// etcdDir is the data folder of etcd.
const etcdDir = "etcd"

// Snapshot copies the present state of etcd and returns the folder of the copy, which
// lives as long as the server. Both processes keep running; etcd is stopped while the
// copy is made.
func (s *Server) Snapshot(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if s.etcd == nil {
		return "", errors.New("snapshot: etcd is not running")
	}
	s.snapshots++
	dir := s.path(fmt.Sprintf("snapshot-%d", s.snapshots))
	// Everything that a process has written is visible to others, and etcd recovers from
	// the state that a kill at this point would leave.
	err := s.etcd.frozen(func() error { return os.CopyFS(dir, os.DirFS(s.path(etcdDir))) })
	return dir, err
}

// Restore stops both processes and starts them again on the state of a snapshot, as an
// administrator does after a disaster: resource versions go back, and the later ones are
// given out again. The snapshot can be restored more than once.
func (s *Server) Restore(ctx context.Context, snapshot string) error {
	if _, err := os.Stat(snapshot); err != nil {
		return err
	}
	s.StopAPIServer()
	s.stopEtcd()
	data := s.path(etcdDir)
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := os.CopyFS(data, os.DirFS(snapshot)); err != nil {
		return err
	}
	// etcd refuses a folder that other users may read.
	if err := os.Chmod(data, 0o700); err != nil {
		return err
	}
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	return s.StartAPIServer(ctx)
}

// Recreate makes another cluster, which knows nothing of this one, answer at the same
// address. Its first resource versions are below the given one, the ones that it gives
// out from now on are above.
func (s *Server) Recreate(ctx context.Context, beyond uint64) error {
	empty := s.path("empty")
	if err := os.MkdirAll(empty, 0o700); err != nil {
		return err
	}
	if err := s.Restore(ctx, empty); err != nil {
		return err
	}
	for {
		now, err := s.revision(ctx)
		if err != nil || now > beyond {
			return err
		}
		if err := s.advance(ctx); err != nil {
			return err
		}
	}
}

// Compact makes etcd forget every state before the present one, which otherwise happens
// every five minutes. kube-apiserver may go on serving earlier states from its memory
// until it is restarted.
func (s *Server) Compact(ctx context.Context) error {
	now, err := s.revision(ctx)
	if err != nil {
		return err
	}
	return s.etcdCall(ctx, "compaction", map[string]any{"revision": strconv.FormatUint(now, 10), "physical": true}, nil)
}

func (s *Server) revision(ctx context.Context) (uint64, error) {
	var now struct{ Header struct{ Revision string } }
	if err := s.etcdCall(ctx, "range", map[string]any{"key": []byte("/"), "keys_only": true}, &now); err != nil {
		return 0, err
	}
	return strconv.ParseUint(now.Header.Revision, 10, 64)
}

// advance takes etcd one revision further by writing a key that kube-apiserver does not
// read.
func (s *Server) advance(ctx context.Context) error {
	return s.etcdCall(ctx, "put", map[string]any{"key": []byte("/advance")}, nil)
}

// etcdCall calls a method of etcd's KV service through its JSON gateway.
func (s *Server) etcdCall(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.etcdURL()+"/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", method, resp.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
