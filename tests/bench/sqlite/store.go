package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	_ "modernc.org/sqlite"
)

const schema = `
CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, namespace TEXT NOT NULL, version TEXT NOT NULL,
	data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_namespace ON objects (namespace);
CREATE TABLE IF NOT EXISTS server (id INTEGER PRIMARY KEY CHECK (id = 0), version TEXT NOT NULL);`

// store keeps pods in SQLite together with the server's version. Both are written in one
// transaction, so each state of the file is one that the server had.
type store struct {
	path    string
	db      *sql.DB
	api     api
	handler cache.ResourceEventHandler
	feed

	read, listed, insert, remove, reach *sql.Stmt
}

// change is a change on the server: of a pod, or of the version alone.
type change struct {
	key     string
	pod     *corev1.Pod // nil if it is gone, or if there is no key
	version string      // of the server, "" if the change is not the last of its version
	written chan<- struct{}
}

func openStore(path string, a api) (*store, error) {
	const pragmas = "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)"
	db, err := sql.Open("sqlite", "file:"+path+pragmas)
	if err != nil {
		return nil, err
	}
	s := &store{path: path, db: db, api: a, feed: newFeed()}
	if _, err := db.Exec(schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, q := range []struct {
		into **sql.Stmt
		text string
	}{
		{&s.read, "SELECT data FROM objects WHERE key = ?"},
		{&s.listed, "SELECT data FROM objects WHERE namespace = ?"},
		{&s.insert, "INSERT INTO objects VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET version = " +
			"excluded.version, data = excluded.data"},
		{&s.remove, "DELETE FROM objects WHERE key = ?"},
		{&s.reach, "INSERT INTO server VALUES (0, ?) ON CONFLICT (id) DO UPDATE SET version = excluded.version"},
	} {
		if *q.into, err = db.Prepare(q.text); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return s, nil
}

// get returns a pod, nil if there is none.
func (s *store) get(key string) (*corev1.Pod, error) { return scan(s.read.QueryRow(key)) }

func scan(row *sql.Row) (*corev1.Pod, error) {
	var data []byte
	if err := row.Scan(&data); errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, pod.Unmarshal(data)
}

// version returns the server's version, "" before the first list has ended.
func (s *store) version() (v string, err error) {
	err = s.db.QueryRow("SELECT version FROM server").Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return v, err
}

// keys returns the keys of all pods.
func (s *store) keys() (map[string]bool, error) {
	rows, err := s.db.Query("SELECT key FROM objects")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	keys := map[string]bool{}
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys[key] = true
	}
	return keys, rows.Err()
}

// write commits changes in one transaction, and then tells the handler.
func (s *store) write(changes []change) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	olds, version := make([]*corev1.Pod, len(changes)), ""
	read, insert, remove := tx.Stmt(s.read), tx.Stmt(s.insert), tx.Stmt(s.remove)
	for i, c := range changes {
		if c.version != "" {
			version = c.version
		}
		if c.key == "" {
			continue
		}
		if !s.empty {
			if olds[i], err = scan(read.QueryRow(c.key)); err != nil {
				return err
			}
		}
		switch old := olds[i]; {
		case c.pod == nil:
			_, err = remove.Exec(c.key)
		case old != nil && old.ResourceVersion == c.pod.ResourceVersion:
			changes[i].key = "" // it is there
		default:
			var data []byte
			if data, err = c.pod.Marshal(); err == nil {
				_, err = insert.Exec(c.key, c.pod.Namespace, c.pod.ResourceVersion, data)
			}
		}
		if err != nil {
			return err
		}
	}
	if version != "" {
		if _, err := tx.Stmt(s.reach).Exec(version); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for i, c := range changes {
		s.tell(c, olds[i])
	}
	s.reached(version)
	return nil
}

func (s *store) tell(c change, old *corev1.Pod) {
	switch {
	case c.key == "":
	case c.pod != nil && old == nil:
		s.handler.OnAdd(c.pod, false)
	case c.pod != nil:
		s.handler.OnUpdate(old, c.pod)
	case old != nil:
		s.handler.OnDelete(old)
	}
}

// list calls a function with each pod of a namespace, or with all if that is "".
func (s *store) list(namespace string, each func(metav1.Object)) error {
	query := func() (*sql.Rows, error) { return s.listed.Query(namespace) }
	if namespace == "" {
		query = func() (*sql.Rows, error) { return s.db.Query("SELECT data FROM objects") }
	}
	rows, err := query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var data sql.RawBytes
		if err := rows.Scan(&data); err != nil {
			return err
		}
		pod := &corev1.Pod{}
		if err := pod.Unmarshal(data); err != nil {
			return err
		}
		each(pod)
	}
	return rows.Err()
}

// replay tells the handler all pods.
func (s *store) replay() error {
	s.empty = true
	return s.list("", func(pod metav1.Object) {
		s.empty = false
		s.handler.OnAdd(pod, true)
	})
}

// run keeps the pods until the context ends: it tells them from the file while a
// Reflector of client-go's goes on from the file's version.
func (s *store) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var reflector sync.WaitGroup
	defer reflector.Wait()
	defer cancel()
	s.feed.ended = ctx.Done()
	reflector.Go(func() {
		cache.NewReflectorWithOptions(source{s}, &corev1.Pod{}, s, cache.ReflectorOptions{}).RunWithContext(ctx)
	})
	if err := s.replay(); err != nil {
		return err
	}
	for {
		batch, flushed := s.next()
		if batch == nil {
			return nil
		}
		if err := s.write(batch); err != nil {
			return err
		}
		for _, f := range flushed {
			close(f)
		}
	}
}

// size returns the size of the database and its log.
func (s *store) size() (n int64) {
	for _, path := range []string{s.path, s.path + "-wal"} {
		if info, err := os.Stat(path); err == nil {
			n += info.Size()
		}
	}
	return n
}
