package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/tabwriter"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// fileStatus is what status -o json prints.
type fileStatus struct {
	File    string            `json:"file"`
	Bytes   int64             `json:"bytes"`
	Sources []boltstore.State `json:"sources"`
}

func newStatus(streams genericiooptions.IOStreams) *cobra.Command {
	var path, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the file holds, and how old it is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf(output, "", "json"); err != nil {
				return err
			}
			db, err := openForReading(path)
			if err != nil {
				return err
			}
			defer db.Close()
			states, err := db.States()
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(streams.Out, fileStatus{path, db.Size(), states})
			}
			w := tabwriter.NewWriter(streams.Out, 0, 8, 3, ' ', 0)
			fmt.Fprintln(w, "SOURCE\tOBJECTS\tBYTES\tRESOURCEVERSION\tCONFIRMED\tSYNCED\tJOURNAL\tUNTOLD")
			for _, st := range states {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s ago\t%t\t%d\t%d\n", st.Source, st.Objects, st.Bytes, st.ResourceVersion,
					age(st.Confirmed), st.Synced, st.JournalBytes, st.Seq-st.Told)
			}
			fmt.Fprintf(streams.ErrOut, "%s: %d bytes, %d sources\n", path, db.Size(), len(states))
			return w.Flush()
		},
	}
	dbFlag(cmd, &path)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json; a table by default")
	return cmd
}

func oneOf(output string, allowed ...string) error {
	for _, a := range allowed {
		if output == a {
			return nil
		}
	}
	return fmt.Errorf("unable to match a printer suitable for the output format %q (-o), allowed formats are: json", output)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "    ")
	return enc.Encode(v)
}

func newCheck(streams genericiooptions.IOStreams) *cobra.Command {
	var path, output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify every record, index entry, digest and journal block of the file",
		Long:  "Verify every record, index entry, digest and journal block of the file.\n\nExit codes: 0 sound, 1 damaged, 2 could not check.",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf(output, "", "json"); err != nil {
				return exitCode{2, err}
			}
			db, err := openForReading(path)
			if err != nil {
				if errors.Is(err, boltstore.ErrDamaged) && !errors.Is(err, fs.ErrNotExist) {
					return exitCode{1, err}
				}
				return exitCode{2, err}
			}
			defer db.Close()
			r, err := db.Check()
			if err != nil {
				return exitCode{2, err}
			}
			if output == "json" {
				err = printJSON(streams.Out, r)
			} else {
				printReport(streams.Out, r)
			}
			if err == nil && !r.Sound() {
				err = exitCode{1, nil}
			}
			return err
		},
	}
	dbFlag(cmd, &path)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json; text by default")
	return cmd
}

func printReport(w io.Writer, r boltstore.Report) {
	for _, p := range r.Problems {
		fmt.Fprintf(w, "file: %s\n", p)
	}
	for _, s := range r.Sources {
		fmt.Fprintf(w, "%s: %d objects, %d indices, %d journal entries", s.Source, s.Objects, s.Indices, s.Entries)
		if len(s.Problems) == 0 {
			fmt.Fprintln(w, ": sound")
			continue
		}
		fmt.Fprintln(w, ": DAMAGED")
		for _, p := range s.Problems {
			fmt.Fprintf(w, "  %s\n", p)
		}
	}
	if r.Sound() {
		fmt.Fprintf(w, "%s is sound (%d bytes)\n", r.Path, r.Bytes)
	} else {
		fmt.Fprintf(w, "%s is damaged; the next program that opens it for writing rebuilds it from the server\n", r.Path)
	}
}
