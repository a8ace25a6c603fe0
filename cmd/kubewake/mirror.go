package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// mirror keeps types in a file until it is interrupted. It is one type because it has the
// command's flags, of which each is a field.
type mirror struct {
	streams  genericiooptions.IOStreams
	flags    *genericclioptions.ConfigFlags
	db       dbFile
	noSocket bool
	all      bool
	selector string
	http     string
	process  bool
	window   time.Duration
	wait     time.Duration
	journal  int64
	age      time.Duration
	maxSize  int
	compress bool
	reopen   bool
	events   bool
	purge    bool
	metered  bool
	audit    time.Duration
	auditNow bool
	serve    bool
	access   access

	configFile string
	wanted     atomic.Pointer[wanted] // by the flags and the config file
	rewanted   chan struct{}          // the config was read again, and asks for something else
	hangups    <-chan os.Signal       // in place of the process's, for tests

	stats     stats
	moved     sync.Map            // resource by argument, in another version, if the file's is not served any more
	out       sync.Mutex          // one line at a time
	unprinted bool                // the last event could not be printed
	bar       atomic.Pointer[bar] // of the first lists, nil: none is shown
}

func newMirror(streams genericiooptions.IOStreams) *cobra.Command {
	cmd, _ := mirrorCommand(streams)
	return cmd
}

func mirrorCommand(streams genericiooptions.IOStreams) (*cobra.Command, *mirror) {
	m := &mirror{streams: streams, flags: genericclioptions.NewConfigFlags(false), rewanted: make(chan struct{}, 1)}
	cmd := &cobra.Command{
		Use:   "mirror TYPE[.GROUP]...",
		Short: "Mirror these types to the file, until interrupted",
		Long: `List the objects of these types into the file, and follow their changes until
SIGTERM or SIGINT. The next start resumes from the file, also after a crash.
Meanwhile the other commands read through a socket beside the file.`,
		Example: `  kubewake mirror pods configmaps -A --db cache.db
  kubewake mirror deployments.apps -n web -l app=shop --http 127.0.0.1:8080
  kubewake mirror --config mirror.yaml    # types: [pods, configmaps], and flags as keys`,
		Args: func(cmd *cobra.Command, args []string) error {
			if m.configFile != "" {
				return nil // it may have the types
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd.Context(), cmd.Flags(), args)
		},
	}
	m.flags.AddFlags(cmd.Flags())
	m.db.addFlags(cmd)
	m.db.clockFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&m.configFile, "config", "",
		"a YAML `file` with the types and any of these flags, which win over the file; SIGHUP reads it again")
	f.BoolVarP(&m.all, "all-namespaces", "A", false, "all namespaces")
	f.StringVarP(&m.selector, "selector", "l", "", "only objects with these labels")
	f.StringVar(&m.http, "http", "", "serve /healthz, /readyz, /status and /metrics at this address")
	f.BoolVar(&m.purge, "purge-denied", false,
		"delete a type from the file once the server has refused it for a minute: 401, 403, or the type is gone")
	f.BoolVar(&m.metered, "metered", false,
		"send the fewest bytes: no list of metadata at a start, and no audits unless --audit-every asks for them")
	f.DurationVar(&m.audit, "audit-every", 0,
		"compare all objects with a list at least this often, since a server may lose changes "+
			"(default 24h; negative: never)")
	f.BoolVar(&m.auditNow, "audit-now", false,
		"compare all objects with a list once each type is live; kubewake status shows when and what it found")
	f.BoolVar(&m.process, "no-sync", false,
		"do not sync each commit: the file survives the end of the process, but not a crash of the machine")
	f.DurationVar(&m.window, "window", 0,
		"gather changes to a busy file for this long (default 20ms; seconds spare flash)")
	f.Int64Var(&m.journal, "journal-bytes", 0, "bytes of history kept for each type (default 16 MiB)")
	f.DurationVar(&m.age, "journal-age", 0, "age of history kept for each type (default 1h)")
	f.IntVar(&m.maxSize, "max-size", 0, "largest size of the file in bytes (default unlimited)")
	f.BoolVar(&m.reopen, "reopen", false,
		"if the file is removed or another file takes its path, start again with the file at the path")
	f.BoolVar(&m.compress, "compress", false,
		"compress stored objects: objects like pods take less than half of the disk space "+
			"and of the bytes written, for up to 60% more processor time")
	f.BoolVar(&m.noSocket, "no-socket", false,
		"do not serve the socket through which other commands read the file while this one runs")
	f.DurationVar(&m.wait, "wait", 0,
		"wait this long for another process to close the file, such as a replica that is being replaced")
	f.BoolVar(&m.events, "events", false,
		"print each change once it is in the file: kind of change, type, namespace/name, UID, resourceVersion")
	f.BoolVar(&m.serve, "serve", false,
		"also serve the file as a Kubernetes API, with pass-through to the server; the flags are those of "+
			"kubewake serve")
	m.access.addFlags(cmd)
	return cmd, m
}

func (m *mirror) logf(format string, args ...any) {
	m.out.Lock()
	defer m.out.Unlock()
	// a server's text may have anything
	m.bar.Load().over(func() { fmt.Fprintln(m.streams.ErrOut, escaped(fmt.Sprintf(format, args...))) })
}

// logger passes the library's messages to logf.
func (m *mirror) logger() *klog.Logger {
	return logger(func(line string) { m.logf("%s", line) })
}

func (m *mirror) config() (*rest.Config, error) {
	cfg, err := clientConfig(m.flags, func(c *rest.Config) { c.Wrap(m.stats.wrapper(!c.DisableCompression)) })
	if err != nil {
		return nil, err
	}
	return reflector.WrapConfig(cfg), nil
}

// open waits up to --wait for a file that another process has open.
func (m *mirror) open(ctx context.Context, o boltstore.Options) (*boltstore.DB, error) {
	said := false
	for end := time.Now().Add(m.wait); ; { // each try waits for LockTimeout
		last := !time.Now().Before(end)
		db, err := m.try(ctx, o)
		switch {
		case last || !errors.Is(err, boltstore.ErrLocked):
			return db, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted while it waited for another process to close the file (--wait): %w",
				err)
		case !said:
			m.logf("%s: waiting up to %s for another process to close it (--wait)", m.db.path, m.wait)
			said = true
		}
	}
}

// lateOpen is how long an Open may go on once the mirror is to end. It is longer than
// LockTimeout.
const lateOpen = time.Second

// try opens the file. It returns before that if ctx has ended and the file system does not
// answer.
func (m *mirror) try(ctx context.Context, o boltstore.Options) (*boltstore.DB, error) {
	var db *boltstore.DB
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		db, err = boltstore.Open(m.db.path, o)
	}()
	select {
	case <-done:
		return db, err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return db, err
	case <-time.After(lateOpen):
	}
	go func() { // it is open after all: the process may not end yet
		if <-done; err == nil {
			_ = db.Close() // nothing was written
		}
	}()
	return nil, fmt.Errorf("interrupted while the file system of %s did not answer", m.db.path)
}

// options returns the options that the flags stand for.
func (m *mirror) options() boltstore.Options {
	o := m.db.options()
	o.Logger, o.Window, o.MaxSize = m.logger(), m.window, m.maxSize
	o.JournalBytes, o.JournalAge = m.journal, m.age
	o.ObjectMemory = -1 // views read the file, and nobody reads here
	if m.process {
		o.Durability = boltstore.DurabilityProcess
	}
	if m.compress {
		o.Compression = boltstore.CompressionZstd
	}
	return o
}

// reflects returns the options of each type's link to the server.
func (m *mirror) reflects(changed func(reflector.State)) reflector.Options {
	o := reflector.Options{PurgeDenied: m.purge, AuditEvery: m.audit, OnState: changed}
	if m.metered {
		o.Confirm = reflector.ConfirmBookmark
	}
	return o
}

// check refuses flags that mean nothing.
func (m *mirror) check() error {
	for _, f := range []struct {
		name     string
		negative bool
	}{
		{"max-size", m.maxSize < 0}, {"journal-bytes", m.journal < 0}, {"journal-age", m.age < 0},
		{"window", m.window < 0}, {"wait", m.wait < 0},
	} {
		if f.negative {
			return fmt.Errorf("--%s must not be negative; leave it out for the default", f.name)
		}
	}
	return nil
}

func (m *mirror) run(ctx context.Context, flags *pflag.FlagSet, args []string) (err error) {
	types := args
	if m.configFile != "" {
		if types, err = configure(m.configFile, flags, args); err != nil {
			return err
		}
	}
	if err := m.check(); err != nil {
		return err
	}
	cfg, err := m.config()
	if err != nil {
		return err
	}
	w, err := m.wants(types)
	if err != nil {
		return err
	}
	limitMemory()
	m.wanted.Store(&w)
	if err := m.access.check(); m.serve && err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { m.reloads(ctx, flags, args, end) })
	o := m.options()
	for {
		again, err := m.life(ctx, cfg, o)
		if !again {
			return err
		}
		m.logf("starting again with the file at %s", m.db.path)
	}
}

// life mirrors to one file. again says that another life follows: another file is at
// the path.
func (m *mirror) life(ctx context.Context, cfg *rest.Config, o boltstore.Options) (again bool, err error) {
	db, err := m.open(ctx, o)
	if err != nil {
		return false, flagOf(err)
	}
	m.stats.begin(db)
	for _, aside := range db.AsidePaths() {
		m.logf("%s could not be used and was renamed to %s; a new file is filled from the server", m.db.path, aside)
	}
	living, end := context.WithCancel(ctx)
	defer end()
	moved := db.Moved()
	go func() {
		select {
		case <-moved:
			if m.reopen || errors.Is(db.Err(), boltstore.ErrDamaged) {
				end()
			}
		case <-living.Done():
		}
	}()
	err = m.live(living, db, cfg)
	if errors.Is(err, context.Canceled) || errors.Is(err, errOtherVersion) {
		again, err = ctx.Err() == nil, nil
	}
	err = errors.Join(err, db.Close())
	return again && err == nil, err
}

// live runs an informer for each type. The first one that cannot go on ends all.
func (m *mirror) live(ctx context.Context, db *boltstore.DB, cfg *rest.Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	k := &keeper{mirror: m, ctx: ctx, end: cancel, db: db, cfg: cfg, running: map[kept]*running{}}
	k.offer = sync.OnceFunc(func() { k.wg.Go(func() { k.serves() }) })
	defer k.close()
	var err error
	if k.cluster, err = clusterOf(ctx, cfg); err != nil {
		return err
	}
	return k.keep()
}

// clusterOf is the name of the config's cluster, as in sources.
func clusterOf(ctx context.Context, cfg *rest.Config) (string, error) {
	gv := schema.GroupVersion{Version: "v1"}
	lw, example, err := listWatch(cfg, resource{gvr: gv.WithResource("namespaces"), gvk: gv.WithKind("Namespace")},
		"", "")
	if err != nil {
		return "", err
	}
	src, _, err := reflector.Identify(ctx, lw, example)
	return src.Cluster, err
}

func (m *mirror) informer(db *boltstore.DB, cfg *rest.Config, r resource, at kept) (*source, error) {
	lw, example, err := listWatch(cfg, r, at.namespace, at.selector)
	if err != nil {
		return nil, err
	}
	src := &source{live: make(chan struct{}), denied: make(chan struct{}, 1), confirmed: make(chan struct{}, 1)}
	src.inf, err = informer.NewSharedIndexInformer(db, lw, example, informer.Options{
		Indexers:  cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		Reflector: m.reflects(func(st reflector.State) { m.changed(src, st) }),
	})
	if err != nil {
		return nil, err
	}
	src.name = src.inf.Store().Source().String()
	if err := src.inf.Store().Describe(r.Description); err != nil { // the next start asks the server again
		m.logf("%s: its scope, names and columns could not be stored: %s", src.name, oneLine(err))
	}
	handler, err := src.inf.AddEventHandler(m.counter(src))
	if err != nil {
		return nil, err
	}
	src.handler = handler
	m.stats.add(src)
	if st := src.inf.Store().State(); st.Synced {
		m.logf("%s: %d objects from the file, at %s, confirmed %s", src.name, st.Objects, st.ResourceVersion,
			confirmedAgo(st))
	}
	return src, nil
}
