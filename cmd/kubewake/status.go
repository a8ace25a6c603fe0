package main

import (
	"encoding/json"
	"fmt"
	"io"
	stdmaps "maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
)

func newStatus(streams genericiooptions.IOStreams) *cobra.Command {
	var db dbFile
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the contents of the file, and how old they are",
		Long: `Show the sources in the file, one list each, and how old they are.

CONFIRMED is when the server last said that the state is current, COMPARED when all
objects were last compared with a list, and SYNCED whether the source was ever listed whole.
JOURNAL is the size of its history in bytes.
UNTOLD counts the changes that plain handlers have still to be told.

Below them are the durable handlers. PENDING counts the keys that one has not acknowledged,
OLDEST is for how long the first of these has been pending, and DELETES counts the deletes that
are kept with them. A handler whose STATE is "reset" must first be told to start over; then
its set of keys is "filling", from all objects. SEEN is when a program last had the handler.`,
		Example: `  kubewake status --db cache.db
  kubewake status --db cache.db -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf(output, "", "json", "yaml"); err != nil {
				return err
			}
			r, err := db.read()
			if err != nil {
				return err
			}
			defer r.Close()
			status := r.status
			if output == "json" {
				return printJSON(streams.Out, status)
			}
			if output == "yaml" {
				text, err := yaml.Marshal(status)
				if err == nil {
					_, err = streams.Out.Write(text)
				}
				return err
			}
			return printStatus(streams, db.path, status)
		},
	}
	db.addFlags(cmd)
	db.clockFlag(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml; a table by default")
	return cmd
}

// printStatus prints the sources and durable handlers as tables, and below them, to the error
// output, what else is to be known of the file at path.
func printStatus(streams genericiooptions.IOStreams, path string, status live.Status) error {
	w := tabwriter.NewWriter(streams.Out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w,
		"SOURCE\tOBJECTS\tBYTES\tRESOURCEVERSION\tCONFIRMED\tCOMPARED\tSYNCED\tJOURNAL\tUNTOLD\tLAST CLAIMED")
	for _, st := range status.Sources {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%t\t%d\t%d\t%s\n", st.Source, st.Objects, st.Bytes, st.ResourceVersion,
			confirmedAgo(st), ago(st.Compared, st.ComparedAge), st.Synced, st.JournalBytes, st.Seq-st.Told,
			ago(st.Claimed, st.ClaimedAge))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printHandlers(streams.Out, status.Sources); err != nil {
		return err
	}
	fmt.Fprintf(streams.ErrOut, "%s: %d bytes, %d sources\n", path, status.Bytes, len(status.Sources))
	for _, st := range status.Sources {
		for _, why := range []string{st.Degraded, st.Outdated} {
			if why != "" {
				fmt.Fprintf(streams.ErrOut, "%s needs a relist: %s\n", st.Source, escaped(why))
			}
		}
	}
	for _, st := range status.Sources {
		if st.Differed > 0 {
			fmt.Fprintf(streams.ErrOut, "%s: the last comparison with a list repaired %d objects\n", st.Source,
				st.Differed)
		}
	}
	for _, st := range status.Sources {
		sayLacks(streams.ErrOut, st)
		if st.InMemory {
			fmt.Fprintf(streams.ErrOut, "%s is read from memory, about %d bytes\n", st.Source, st.ObjectMemory)
		}
	}
	printNoted(streams.ErrOut, status.Sources)
	for _, a := range status.SetAside {
		fmt.Fprintf(streams.ErrOut, "set aside at %s, %s: %s, %d bytes\n", a.Time.Format(time.RFC3339), a.Reason,
			a.Path, a.Bytes)
	}
	if o := status.Owner; o != nil {
		printOwner(streams.ErrOut, o)
	}
	return nil
}

// printNoted prints how many objects could not be stored or indexed.
func printNoted(w io.Writer, states []boltstore.State) {
	for _, st := range states {
		if st.Unstored > 0 {
			fmt.Fprintf(w, "%s: %d objects could not be stored and will be read again; the last one because: %s\n",
				st.Source, st.Unstored, escaped(st.UnstoredReason))
		}
		if st.Unindexed > 0 {
			fmt.Fprintf(w, "%s: %d values of indices are missing, since index functions failed\n", st.Source,
				st.Unindexed)
		}
	}
}

func printOwner(w io.Writer, o *live.Owner) {
	fmt.Fprintf(w, "open in process %d\n", o.PID)
	if o.Moved != "" {
		fmt.Fprintf(w, "no other program finds its file: %s\n", o.Moved)
	}
	if o.Error != "" {
		fmt.Fprintf(w, "commits fail and are retried: %s\n", o.Error)
	}
	for _, name := range slices.Sorted(stdmaps.Keys(o.Sources)) {
		fmt.Fprintln(w, escaped(name+": "+o.Sources[name]))
	}
}

// printHandlers prints the pending keys of each durable handler, if there are any.
func printHandlers(out io.Writer, states []boltstore.State) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	header := "\nHANDLER\tSOURCE\tPENDING\tOLDEST\tDELETES\tBYTES\tSTATE\tSEEN\n"
	for _, st := range states {
		for _, h := range st.Handlers {
			fmt.Fprint(w, header)
			header = ""
			oldest := h.Age.Truncate(time.Second).String()
			switch {
			case h.AgeUnknown:
				oldest = "unknown"
			case h.Bytes == 0: // none is in the set
				oldest = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\t%s\t%s\n", h.Name, st.Source, h.Pending, oldest, h.Deleted, h.Bytes,
				handlerState(h), ago(h.Seen, h.SeenAge))
		}
	}
	return w.Flush()
}

// handlerState says what a durable handler is told next, in a word.
func handlerState(h boltstore.HandlerState) string {
	switch {
	case h.Reset:
		return "reset"
	case h.Behind:
		return "filling"
	case h.Pending > 0:
		return "pending"
	default:
		return "idle"
	}
}

func oneOf(output string, allowed ...string) error {
	for _, a := range allowed {
		if output == a {
			return nil
		}
	}
	return fmt.Errorf("unable to match a printer suitable for the output format %q (-o), allowed formats are: %s",
		output, strings.Join(allowed[1:], ", "))
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "    ")
	return enc.Encode(v)
}
