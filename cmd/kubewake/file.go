package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/reflector"
)

// dbFile is the file that a command reads or writes.
type dbFile struct {
	path   string
	flag   string // that gave path; "": --db
	keyset string
	unsafe bool
	trust  bool          // the machine's clock
	wait   time.Duration // for another process to close the file; 0: boltstore's default

	cluster *string // the cluster of a type's sources, nil for the only one
}

func (f *dbFile) addFlags(cmd *cobra.Command) {
	def := os.Getenv("KUBEWAKE_DB")
	if def == "" {
		def = "kubewake.db"
	}
	cmd.Flags().StringVar(&f.path, "db", def, "the file; $KUBEWAKE_DB, if set, is the default")
	keysetFlag(cmd, &f.keyset)
	f.unsafeFlag(cmd)
}

// unsafeFlag adds --allow-unsafe-path.
func (f *dbFile) unsafeFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.unsafe, "allow-unsafe-path", false,
		"accept a file or folder that other users can change, and symlinks")
}

// clusterFlag adds --cluster, which may be empty.
func (f *dbFile) clusterFlag(cmd *cobra.Command) {
	cmd.Flags().Func("cluster", "the `name` of a cluster, as status shows it; needed if the file has several",
		func(name string) error {
			f.cluster = &name
			return nil
		})
}

func inCluster(states []boltstore.State, name string) []boltstore.State {
	return slices.DeleteFunc(slices.Clone(states), func(st boltstore.State) bool { return st.Source.Cluster != name })
}

// namespaceFlag adds --namespace, which completes the namespaces of the file.
func namespaceFlag(cmd *cobra.Command, db *dbFile, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "namespace; the kubeconfig's by default, as in mirror")
	_ = cmd.RegisterFlagCompletionFunc("namespace", db.namespaces) // fails only for an unknown flag
}

// namespaceOf returns the given namespace, or the default one. An unusable kubeconfig
// counts as missing, since the command asks no server.
func namespaceOf(given string) string {
	if given != "" {
		return given
	}
	ns, _, err := genericclioptions.NewConfigFlags(false).ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return ns
}

// options returns the options that the flags stand for.
func (f *dbFile) options() boltstore.Options {
	return boltstore.Options{AllowUnsafePath: f.unsafe, Keyset: keysetOf(f.keyset), TrustClock: f.trust}
}

// clockFlag adds --trust-clock.
func (f *dbFile) clockFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.trust, "trust-clock", false,
		"the machine's clock is always right, as one with a battery; without this flag, ages of an earlier boot "+
			"are known only while the system calls its clock synchronised, or a server on another machine has "+
			"the same time")
}

// open opens an existing file for reading.
func (f *dbFile) open() (*boltstore.DB, error) { return f.openWithin(f.wait) }

func (f *dbFile) openWithin(wait time.Duration) (*boltstore.DB, error) {
	o := f.options()
	o.ReadOnly, o.GiveWay, o.LockTimeout = true, true, wait // other programs need not wait for this one
	db, err := boltstore.Open(f.path, o)
	return db, f.flagOf(err)
}

// read reads the file, through its owner's socket if another process has it open.
func (f *dbFile) read() (*reader, error) {
	db, err := f.openWithin(-1) // a process that has it open can answer at once

	// If the file was removed, a program may still have it open.
	gone := errors.Is(err, fs.ErrNotExist) && !errors.Is(err, boltstore.ErrKeyset)
	for again := false; gone || errors.Is(err, boltstore.ErrLocked); again = true {
		r, noOwner := f.owner()
		silent := errors.Is(noOwner, context.DeadlineExceeded)
		switch {
		case noOwner == nil:
			return r, nil
		case gone && !silent:
			return nil, err
		case gone || silent || again:
			return nil, fmt.Errorf("%w; %w", err, noOwner)
		}
		db, err = f.open() // a process that has it open may be about to close it
	}
	if err != nil {
		return nil, err
	}
	st, err := live.StatusOf(db)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &reader{dbFile: f, status: st, db: db}, nil
}

// owner asks the process that has the file open, by its socket.
func (f *dbFile) owner() (*reader, error) {
	c, st, err := live.Ask(f.path)
	return &reader{dbFile: f, status: st, owner: c}, err
}

// reader reads a file that is open here, or the copy of one that another process has open.
type reader struct {
	*dbFile
	status live.Status
	owner  *live.Client  // nil if the file is open here
	db     *boltstore.DB // nil until a copy is needed
	free   func() error  // removes the copy
}

// file is the file, or its copy by the owner.
func (r *reader) file(ctx context.Context) (*boltstore.DB, error) {
	if r.db != nil {
		return r.db, nil
	}
	dir, release, err := tempDir("kubewake-copy-")
	if err != nil {
		return nil, err
	}
	r.free = func() error {
		defer release()
		return os.RemoveAll(dir)
	}
	of := *r.dbFile
	of.path = filepath.Join(dir, "copy.db")
	if _, err := snapshot(ctx, r.owner, of.path, false); err != nil {
		return nil, err
	}
	r.db, err = of.open()
	return r.db, err
}

// Snapshot writes a copy of the file as one commit left it.
func (r *reader) Snapshot(ctx context.Context, w io.Writer) error {
	if r.owner != nil {
		return r.owner.Snapshot(ctx, w)
	}
	s, err := r.db.Snapshot()
	if err != nil {
		return err
	}
	_, err = io.Copy(until{ctx, w}, s)
	return errors.Join(err, s.Close())
}

// until writes until the context ends.
type until struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (u until) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}

// Close closes the file or its copy, and removes the copy.
func (r *reader) Close() (err error) {
	if r.db != nil {
		err = r.db.Close()
	}
	if r.free != nil {
		err = errors.Join(err, r.free())
	}
	if r.owner != nil {
		err = errors.Join(err, r.owner.Close())
	}
	return err
}

// ofType reads the sources of one type in a file.
type ofType struct {
	*reader
	sources []boltstore.State         // at least one
	upheld  map[boltstore.Source]bool // sources that the file's owner keeps up to date at the moment
}

// readType is read, with the sources of the one type that typ means. It fails if the
// file has none.
func (f *dbFile) readType(typ string) (*ofType, error) {
	r, err := f.read()
	if err != nil {
		return nil, err
	}
	_, states, err := f.ofCluster(r.status.Sources)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	sources, err := inFile(states, typ)
	if err == nil && len(sources) == 0 {
		return nil, errors.Join(notInFile(typ, f.path, states), r.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", f.path, err), r.Close())
	}
	owner := r.status.Owner
	t := &ofType{r, sources, map[boltstore.Source]bool{}}
	for _, st := range sources {
		t.upheld[st.Source] = owner != nil &&
			strings.HasPrefix(owner.Sources[st.Source.String()], string(reflector.PhaseLive))
	}
	return t, nil
}

// answering is readType, with the sources that answer a question about the type. It
// writes to errOut what the answer lacks, and which sources have never been listed.
func (f *dbFile) answering(
	errOut io.Writer, typ, namespace string, all bool, selector labels.Selector,
) (*ofType, []boltstore.State, error) {
	r, err := f.readType(typ)
	if err != nil {
		return nil, nil, err
	}
	q := ask(namespace, all, selector)
	q.upheld = r.upheld
	sources, note, err := q.answer(r.sources)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", f.path, err), r.Close())
	}
	if note != "" {
		fmt.Fprintln(errOut, note)
	}
	for _, st := range sources {
		if !st.Synced {
			fmt.Fprintf(errOut, "%s: nothing has been read from the server yet\n", st.Source)
		}
	}
	return r, sources, nil
}

// sayConfirmed says when the server confirmed a source. If the source has never been
// listed, answering has said so.
func sayConfirmed(errOut io.Writer, st boltstore.State) {
	if st.Synced {
		fmt.Fprintf(errOut, "%s: confirmed by the server %s\n", st.Source, confirmedAgo(st))
		if st.NewestPage != "" {
			fmt.Fprintf(errOut, "%s: some objects are of a list that has not ended, and newer: of versions up to %s\n",
				st.Source, escaped(st.NewestPage))
		}
	}
	sayLacks(errOut, st)
}

// sayLacks says so if fields of the server's objects are not in the file.
func sayLacks(errOut io.Writer, st boltstore.State) {
	if st.LacksFields != "" {
		fmt.Fprintf(errOut, "%s may lack fields: %s\n", st.Source, escaped(st.LacksFields))
	}
}

// served is the name of the cluster that is served, the given one or the file's only one,
// with its sources.
func (f *dbFile) served() (name string, sources []boltstore.State, err error) {
	r, err := f.read()
	if err != nil {
		return "", nil, err
	}
	if err := r.Close(); err != nil {
		return "", nil, err
	}
	return f.ofCluster(r.status.Sources)
}

// ofCluster returns the sources of the given cluster, or of the file's only one, and its name.
// Objects of two clusters are never mixed.
func (f *dbFile) ofCluster(sources []boltstore.State) (name string, of []boltstore.State, err error) {
	var names []string
	for _, src := range sources {
		names = append(names, src.Source.Cluster)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	given := f.cluster != nil
	switch {
	case given:
		name = *f.cluster
	case len(names) == 1:
		name = names[0]
	}
	chosen := given || len(names) == 1
	if len(names) == 0 || chosen && slices.Contains(names, name) {
		return name, inCluster(sources, name), nil
	}
	for i, name := range names {
		names[i] = cmp.Or(name, `""`)
	}
	all := strings.Join(names, ", ")
	if given {
		return "", nil, fmt.Errorf("the file has nothing of cluster %q, only of: %s (--cluster)", *f.cluster, all)
	}
	return "", nil, fmt.Errorf("the file has several clusters; name one (--cluster): %s", all)
}
