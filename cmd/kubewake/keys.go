package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// keysetFlag adds --keyset.
func keysetFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "keyset", os.Getenv("KUBEWAKE_KEYSET"),
		"the `file` with the Tink keyset that encrypts the database, made by kubewake keys generate; "+
			"$KUBEWAKE_KEYSET, if set, is the default")
}

// keysetOf returns the keyset in a file, nil for no file.
func keysetOf(file string) *seal.Keyset {
	if file == "" {
		return nil
	}
	return seal.File(file)
}

// flagOf adds the flag that an error of opening a file concerns to the error.
func flagOf(err error) error { return (&dbFile{}).flagOf(err) }

func (f *dbFile) flagOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltstore.ErrKeyset):
		return fmt.Errorf("%w (--keyset)", err)
	}
	return fmt.Errorf("%w (%s)", err, cmp.Or(f.flag, "--db"))
}

func newKeys(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make the keyset that encrypts files, rotate it, encrypt and decrypt files",
		Example: `  kubewake keys generate cache.key
  kubewake keys encrypt --keyset cache.key --db cache.db`,
		Args: cobra.NoArgs,
		// without RunE, cobra would not check Args
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// A first signal ends them, too: their files are then the old ones or the new ones. A new
		// keyset is made at once.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if cmd.Name() != "generate" {
				signal.Reset(os.Interrupt, syscall.SIGTERM)
			}
		},
	}
	say := func(format string, args ...any) error {
		_, err := fmt.Fprintf(streams.Out, format+"\n", args...)
		return err
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "generate FILE",
		Short:   "Write a new keyset that only its owner can read; an existing file is not overwritten",
		Example: "  kubewake keys generate cache.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "-" {
				return errors.New("a keyset is not written to standard output; name a file")
			}
			if err := seal.Generate(args[0]); err != nil {
				return err
			}
			return say("%s: keep it apart from the files that it encrypts, and keep a copy", args[0])
		},
	})
	cmd.AddCommand(newRotate(streams, say),
		newConvert("encrypt", "Encrypt a file with the keyset", func(file dbFile) error {
			db, err := openExisting(streams, file)
			if err != nil {
				return err
			}
			return db.Close()
		}, func(path string) error { return say("%s is encrypted", path) }),
		newConvert("decrypt", "Decrypt an encrypted file", func(file dbFile) error {
			o := file.options()
			o.Logger = loggerTo(streams.ErrOut)
			return flagOf(boltstore.Decrypt(file.path, o))
		}, func(path string) error { return say("%s is no longer encrypted", path) }))
	return cmd
}

func newRotate(streams genericiooptions.IOStreams, say func(format string, args ...any) error) *cobra.Command {
	var file dbFile
	cmd := &cobra.Command{
		Use:   "rotate [FILE]",
		Short: "Add a key to the keyset and make it the primary one",
		Long: "Add a key to the keyset and make it the primary one. A file that the keyset encrypts gets a " +
			"new data key " +
			"when it is next opened for writing, or now if you name it with --db. Older keys stay in the keyset " +
			"for files " +
			"that have not been opened since.",
		Example: `  kubewake keys rotate cache.key
  kubewake keys rotate --keyset cache.key --db cache.db`,
		Args: cobra.MaximumNArgs(1),
	}
	keysetFlag(cmd, &file.keyset)
	cmd.Flags().StringVar(&file.path, "db", "", "a file that gets a new data key now")
	file.unsafeFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && cmd.Flags().Changed("keyset") {
			return errors.New("name the keyset's file once: as the argument or by --keyset")
		}
		if len(args) > 0 {
			file.keyset = args[0]
		}
		if file.keyset == "" {
			return errNoKeyset
		}
		if file.path != "" { // if it cannot be opened, nothing changes
			db, err := file.open()
			if err != nil {
				return err
			}
			encrypted := db.Encrypted()
			if err := db.Close(); err != nil {
				return err
			}
			if !encrypted {
				return fmt.Errorf("%s is not encrypted and nothing was changed; kubewake keys encrypt "+
					"encrypts it (--db)", file.path)
			}
		}
		if err := seal.Rotate(file.keyset); err != nil {
			return fmt.Errorf("%w (--keyset)", err)
		}
		if file.path == "" {
			return say("%s: it has a new primary key", file.keyset)
		}
		due := func(why string) error {
			return fmt.Errorf("%s: it has a new primary key, and %s could not be given a new data key; "+
				"its next opening for writing will try again%s", file.keyset, file.path, why)
		}
		db, err := openExisting(streams, file)
		if err != nil { // another program has opened it meanwhile
			return due(": " + oneLine(err))
		}
		kept := db.KeysDue()
		if err := db.Close(); err != nil {
			return err
		}
		if kept {
			return due("")
		}
		return say("%s: it has a new primary key, and %s a new data key", file.keyset, file.path)
	}
	return cmd
}

var errNoKeyset = errors.New("no keyset was given; name its file (--keyset or $KUBEWAKE_KEYSET), or make one with " +
	"`kubewake keys generate FILE`")

func newConvert(use, short string, convert func(dbFile) error, done func(path string) error) *cobra.Command {
	var file dbFile
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long: short + ". The file is copied, and the copy renamed over it. The disk blocks of the old file are " +
			"freed, but not wiped.",
		Example: "  kubewake keys " + use + " --keyset cache.key --db cache.db",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if file.keyset == "" {
				return errNoKeyset
			}
			if err := convert(file); err != nil {
				return err
			}
			return done(file.path)
		},
	}
	file.addFlags(cmd)
	return cmd
}

// openExisting opens a file for writing, which encrypts it. It does not touch a file
// that is missing or cannot be read.
func openExisting(streams genericiooptions.IOStreams, file dbFile) (*boltstore.DB, error) {
	db, err := file.open()
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	o := file.options()
	o.Logger = loggerTo(streams.ErrOut)
	db, err = boltstore.Open(file.path, o)
	return db, flagOf(err)
}
