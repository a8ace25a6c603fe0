package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	stdmaps "maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

type indexCmd struct {
	streams   genericiooptions.IOStreams
	db        dbFile
	namespace string
	all       bool
	output    string
	secrets   bool
}

func newIndex(streams genericiooptions.IOStreams) *cobra.Command {
	i := &indexCmd{streams: streams}
	cmd := &cobra.Command{
		Use:   "index TYPE [INDEX [VALUE]]",
		Short: "Show the indices of a type, an index's values, or a value's keys",
		Long: "Show the indices of a type, an index's values, or a value's keys, as the file has them. Programs " +
			"name their indices\n" +
			"when they make an informer (Indexers). Every type has the index namespace.",
		Example: `  kubewake index pods -A --db cache.db
  kubewake index pods namespace -A
  kubewake index pods byNode n1 -A`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error { return i.run(cmd.Context(), args[0], args[1:]) },
	}
	i.db.addFlags(cmd)
	i.db.clusterFlag(cmd)
	f := cmd.Flags()
	namespaceFlag(cmd, &i.db, &i.namespace)
	completesTypes(cmd, &i.db, 1, nil)
	f.BoolVarP(&i.all, "all-namespaces", "A", false, "all namespaces")
	f.StringVarP(&i.output, "output", "o", "", "output format: json, with the keys of each value; text by default")
	f.BoolVar(&i.secrets, "show-secrets", false, "show indices of secrets, whose values may have their data")
	return cmd
}

func (i *indexCmd) run(ctx context.Context, typ string, args []string) error {
	if err := oneOf(i.output, "", "json"); err != nil {
		return err
	}
	i.namespace = namespaceOf(i.namespace)
	r, sources, err := i.db.answering(i.streams.ErrOut, typ, i.namespace, i.all, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	names := args[:min(len(args), 1)]
	if len(names) == 0 {
		names = namesOf(sources)
	}
	found := map[string]map[string][]string{} // keys by index and value
	for _, st := range sources {
		sayConfirmed(i.streams.ErrOut, st)
		if st.Unindexed > 0 {
			fmt.Fprintf(i.streams.ErrOut, "%s: %d values of indices are missing, since index functions failed\n",
				st.Source, st.Unindexed)
		}
		for _, name := range names {
			if len(args) == 0 && name != cache.NamespaceIndex && !slices.Contains(st.Indices, name) {
				continue // another source has it
			}
			err := i.read(ctx, r.reader, st, name, found)
			switch {
			case errors.Is(err, errSecret) && len(args) == 0:
				fmt.Fprintf(i.streams.ErrOut, "%v; --show-secrets shows it\n", err)
			case errors.Is(err, errSecret):
				return fmt.Errorf("%w; --show-secrets shows it", err)
			case err != nil:
				return err
			}
		}
	}
	return i.print(found, names, args)
}

// namesOf returns the names of the sources' indices.
func namesOf(sources []boltstore.State) []string {
	names := sets.New(cache.NamespaceIndex)
	for _, st := range sources {
		names.Insert(st.Indices...)
	}
	return sets.List(names)
}

// read adds an index's keys to found.
func (i *indexCmd) read(
	ctx context.Context, r *reader, st boltstore.State, name string, found map[string]map[string][]string,
) error {
	values := found[name]
	if values == nil {
		values = map[string][]string{}
	}
	err := r.index(ctx, query{source: st, secrets: i.secrets}, name, "", func(v indexValue) error {
		keys := slices.DeleteFunc(v.Keys, func(key string) bool {
			ns, _, err := cache.SplitMetaNamespaceKey(key)
			return err != nil || !i.all && ns != "" && ns != i.namespace
		})
		if len(keys) > 0 {
			values[v.Value] = append(values[v.Value], keys...)
		}
		return nil
	})
	if err == nil {
		found[name] = values
	}
	return err
}

func (i *indexCmd) print(found map[string]map[string][]string, names, args []string) error {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 8, 3, ' ', 0)
	switch {
	case len(args) == 2:
		value := args[1]
		keys := found[names[0]][value]
		slices.Sort(keys)
		if len(keys) == 0 {
			return fmt.Errorf("no object has the value %q in index %s", value, names[0])
		}
		if i.output == "json" {
			return printJSON(i.streams.Out, indexValue{Value: value, Keys: keys})
		}
		for _, key := range keys {
			fmt.Fprintln(w, escaped(key))
		}
	case i.output == "json":
		return printJSON(i.streams.Out, found)
	case len(args) == 1:
		fmt.Fprintln(w, "VALUE\tKEYS")
		values := found[names[0]]
		for _, value := range slices.Sorted(stdmaps.Keys(values)) {
			fmt.Fprintf(w, "%s\t%d\n", escaped(value), len(values[value]))
		}
	default:
		names = slices.DeleteFunc(names, func(name string) bool { return found[name] == nil })
		fmt.Fprintln(w, "INDEX\tVALUES\tKEYS")
		for _, name := range names {
			keys := 0
			for _, k := range found[name] {
				keys += len(k)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\n", escaped(name), len(found[name]), keys)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := out.WriteTo(i.streams.Out)
	return err
}
