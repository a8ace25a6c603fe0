package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
)

func newSnapshot(streams genericiooptions.IOStreams) *cobra.Command {
	var db dbFile
	var force bool
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Copy the file, even while a program has it open",
		Long: "Copy the file as one commit left it, even while a program has it open. The copy is a kubewake file\n" +
			"itself. It gets its name once it is complete and on the disk.",
		Example: `  kubewake snapshot copy.db --db cache.db
  kubewake snapshot copy.db --force --db cache.db`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return errors.New("the name of the copy is empty")
			}
			if args[0] == "-" {
				return errors.New("a snapshot is not written to standard output; name a file")
			}
			r, err := db.read()
			if err != nil {
				return err
			}
			defer r.Close()
			size, err := snapshot(cmd.Context(), r, args[0], force, db.path, db.keyset)
			if err != nil {
				return fmt.Errorf("snapshot %s: %w", args[0], err)
			}
			fmt.Fprintf(streams.ErrOut, "%s: %d bytes\n", args[0], size)
			return nil
		},
	}
	db.addFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return cmd
}

// copied is a file that can be copied.
type copied interface {
	// Snapshot writes a copy of the file as one commit left it.
	Snapshot(ctx context.Context, w io.Writer) error
}

// snapshot makes the file at to, with mode 0600, whole or not at all. With force it
// replaces an existing file, except those in keep and files that a program has open.
func snapshot(ctx context.Context, of copied, to string, force bool, keep ...string) (size int64, err error) {
	exists := func() error {
		if _, err := os.Lstat(to); err == nil && !force {
			return errors.New("it exists; --force replaces it")
		}
		return nil
	}
	if err := exists(); err != nil {
		return 0, err // before the work
	}
	if err := replaceable(to, keep); err != nil {
		return 0, err
	}
	f, release, err := newCopy(filepath.Dir(to))
	if err != nil {
		return 0, err
	}
	defer release()
	defer func() {
		if rerr := os.Remove(f.Name()); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}()
	err = of.Snapshot(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	st, serr := f.Stat()
	if err := errors.Join(err, serr, f.Close()); err != nil {
		return 0, err
	}
	if force {
		err = replaceWith(f.Name(), to, keep)
	} else if err = os.Link(f.Name(), to); err != nil { // a link, unlike a rename, replaces nothing
		if err := exists(); err != nil {
			return 0, err
		}
		err = os.Rename(f.Name(), to) // the file system has no links
	}
	if err != nil {
		return 0, err
	}
	d, err := os.Open(filepath.Dir(to))
	if err != nil {
		return 0, err
	}
	_ = d.Sync() // not all systems can
	return st.Size(), d.Close()
}

// replaceable returns an error if the file at to must not be replaced: it is one of
// keep under another name, or no regular file.
func replaceable(to string, keep []string) error {
	st, err := os.Lstat(to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() && st.Mode().Type() != fs.ModeSymlink {
		return errors.New("it is not a regular file, so it is not replaced; choose another name")
	}
	target, err := os.Stat(to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a link to nothing
	}
	if err != nil {
		return err
	}
	if !target.Mode().IsRegular() {
		return errors.New("it is a link, and not to a regular file, so it is not replaced; choose another name")
	}
	for _, path := range keep {
		if st, err := os.Stat(path); err == nil && os.SameFile(st, target) {
			return fmt.Errorf("it is %s itself, which this command reads; choose another name", path)
		}
	}
	return nil
}

// replaceWith renames the file name to to, over another file that no other program has
// open.
func replaceWith(name, to string, keep []string) error {
	if err := replaceable(to, keep); err != nil {
		return err
	}
	release, err := boltstore.Lock(to)
	if errors.Is(err, fs.ErrNotExist) {
		release, err = func() {}, nil
	}
	if errors.Is(err, boltstore.ErrLocked) {
		return fmt.Errorf("%w; it is not replaced while that program has it open", err)
	}
	if err != nil {
		return err
	}
	defer release()
	return os.Rename(name, to)
}

// copyPrefix begins the names of copies that are being made.
const copyPrefix = ".kubewake-snapshot-"

// newCopy makes an empty file of mode 0600 in a folder. It first removes files that
// killed snapshots have left there. Until release is called, the new file is locked, so
// that no other snapshot takes it for a leftover.
func newCopy(dir string) (f *os.File, release func(), err error) {
	removeLeftovers(dir, copyPrefix)
	for range 10 {
		if f, err = os.CreateTemp(dir, copyPrefix+"*"); err != nil {
			return nil, nil, err
		}
		if release, err = lockNew(f.Name()); err == nil {
			return f, release, nil
		}
		_ = f.Close() // another one has removed it
	}
	return nil, nil, err
}

// tempDir makes a folder for temporary files, locked as newCopy's file is, and first
// removes those that killed commands have left.
func tempDir(prefix string) (dir string, release func(), err error) {
	removeLeftovers(os.TempDir(), prefix)
	for range 10 {
		if dir, err = os.MkdirTemp("", prefix); err != nil {
			return "", nil, fmt.Errorf("there is no folder for temporary files; make it, or set $TMPDIR to "+
				"another one: %w", err)
		}
		if release, err = lockNew(dir); err == nil {
			return dir, release, nil
		}
	}
	return "", nil, err
}

// lockNew locks a file or folder that was just made. The error says that another command
// was faster and took it for a leftover.
func lockNew(name string) (release func(), err error) {
	release, err = boltstore.Lock(name)
	if err == nil || errors.Is(err, boltstore.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return release, err
	}
	return func() {}, nil // without locks nothing is removed
}

// removeLeftovers removes the files and folders that killed commands have left in a
// folder, by the beginning of their names. Those of commands that run are locked.
func removeLeftovers(dir, prefix string) {
	all, err := os.ReadDir(dir)
	if err != nil || runtime.GOOS == "windows" { // no locks
		return
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), prefix) || !e.Type().IsRegular() && !e.IsDir() {
			continue
		}
		name := filepath.Join(dir, e.Name())
		release, err := boltstore.Lock(name)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(name) // if that fails, it stays
		release()
	}
}
