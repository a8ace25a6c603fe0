package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// keysetFlag adds --keyset.
func keysetFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "keyset", os.Getenv("KUBEWAKE_KEYSET"),
		"the Tink keyset `file` that encrypts the file, made by kubewake keys generate; $KUBEWAKE_KEYSET, if set, is the default")
}

// keysetOf is nil without a file.
func keysetOf(file string) *seal.Keyset {
	if file == "" {
		return nil
	}
	return seal.File(file)
}

// flagOf says which flag an error of opening a file is about.
func flagOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltstore.ErrKeyset):
		return fmt.Errorf("%w (--keyset)", err)
	}
	return fmt.Errorf("%w (--db)", err)
}

func newKeys(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make the keyset that encrypts files, rotate it, encrypt and decrypt files",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // or Args would not be looked at
	}
	say := func(format string, args ...any) error {
		_, err := fmt.Fprintf(streams.Out, format+"\n", args...)
		return err
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "generate FILE",
		Short: "Write a new keyset, for its owner only; what is there already is not overwritten",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := seal.Generate(args[0]); err != nil {
				return err
			}
			return say("%s: keep it apart from what it encrypts, and a copy of it", args[0])
		},
	})

	var file dbFile
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Add a key to the keyset and make it the primary one",
		Long: "Add a key to the keyset and make it the primary one. A file that is encrypted with the keyset gets new keys when it is " +
			"opened for writing the next time, or now if it is given as --db. Older keys stay in the keyset for files that have not been opened since.",
		Args: cobra.NoArgs,
	}
	keysetFlag(rotate, &file.keyset)
	rotate.Flags().StringVar(&file.path, "db", "", "a file that is to have new keys now")
	rotate.RunE = func(*cobra.Command, []string) error {
		if file.keyset == "" {
			return errNoKeyset
		}
		if file.path != "" { // nothing is changed if it cannot be opened
			db, err := file.open()
			if err != nil {
				return err
			}
			encrypted := db.Encrypted()
			if err := db.Close(); err != nil {
				return err
			}
			if !encrypted {
				return fmt.Errorf("%s is not encrypted, nothing was changed; kubewake keys encrypt does it (--db)", file.path)
			}
		}
		if err := seal.Rotate(file.keyset); err != nil {
			return fmt.Errorf("%w (--keyset)", err)
		}
		if file.path == "" {
			return say("%s: it has a new primary key", file.keyset)
		}
		db, err := openExisting(streams, file, false)
		if err != nil {
			return err
		}
		due := db.KeysDue()
		if err := db.Close(); err != nil {
			return err
		}
		if due {
			return fmt.Errorf("%s: it has a new primary key, and %s could not be given new data keys; its next opening for writing will try again", file.keyset, file.path)
		}
		return say("%s: it has a new primary key, and %s new data keys", file.keyset, file.path)
	}

	cmd.AddCommand(rotate,
		newConvert(streams, "encrypt", "Encrypt a file with the keyset", func(path string) error { return say("%s is encrypted", path) }, false),
		newConvert(streams, "decrypt", "Turn an encrypted file into a plain one", func(path string) error { return say("%s is not encrypted any more", path) }, true))
	return cmd
}

var errNoKeyset = errors.New("no keyset was given; name its file (--keyset, or $KUBEWAKE_KEYSET), or make one with `kubewake keys generate FILE`")

func newConvert(streams genericiooptions.IOStreams, use, short string, done func(path string) error, decrypt bool) *cobra.Command {
	var file dbFile
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ". The file is copied and the copy renamed over it. The disk's blocks that held the old one are free and not wiped.",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if file.keyset == "" {
				return errNoKeyset
			}
			db, err := openExisting(streams, file, decrypt)
			if err != nil {
				return err
			}
			if err := db.Close(); err != nil {
				return err
			}
			return done(file.path)
		},
	}
	file.addFlags(cmd)
	return cmd
}

// openExisting opens a file for writing, and thereby converts it. One that is
// not there, or cannot be read, is left alone.
func openExisting(streams genericiooptions.IOStreams, file dbFile, decrypt bool) (*boltstore.DB, error) {
	db, err := file.open()
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	o := file.options()
	o.Decrypt, o.Logger = decrypt, loggerTo(streams.ErrOut)
	db, err = boltstore.Open(file.path, o)
	return db, flagOf(err)
}
