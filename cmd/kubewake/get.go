package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
)

type get struct {
	streams   genericiooptions.IOStreams
	db        dbFile
	namespace string
	all       bool
	selector  string
	output    string
	noHeaders bool
	secrets   bool
}

func newGet(streams genericiooptions.IOStreams) *cobra.Command {
	g := &get{streams: streams}
	cmd := &cobra.Command{
		Use:   "get TYPE [NAME...]",
		Short: "Show objects in the file; no server is asked",
		Long: "Show objects in the file; no server is asked. TYPE means what it means to kubectl: a type of the core group comes\n" +
			"before others of its name, then a built-in one. TYPE.GROUP names any type. If several sources have all that you\n" +
			"ask for, the one that the server confirmed last answers. Standard error says which one, and how old it is.",
		Example: `  kubewake get pods -n web -l app=shop --db cache.db
  kubewake get deployments.apps shop -n web -o yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return g.run(cmd.Context(), args[0], args[1:]) },
	}
	g.db.addFlags(cmd)
	g.db.clockFlag(cmd)
	g.db.clusterFlag(cmd)
	f := cmd.Flags()
	namespaceFlag(cmd, &g.namespace)
	f.BoolVarP(&g.all, "all-namespaces", "A", false, "all namespaces")
	f.StringVarP(&g.selector, "selector", "l", "", "only objects with these labels")
	f.StringVarP(&g.output, "output", "o", "", "output format: json, yaml, name or wide; a table by default")
	f.BoolVar(&g.noHeaders, "no-headers", false, "print tables without headers")
	f.BoolVar(&g.secrets, "show-secrets", false, "show the data of secrets")
	return cmd
}

func (g *get) run(ctx context.Context, typ string, names []string) error {
	selector, err := labels.Parse(g.selector)
	if err != nil {
		return fmt.Errorf("the selector cannot be parsed (-l): %w", err)
	}
	if !slices.Contains([]string{"", "json", "yaml", "name", "wide"}, g.output) {
		return fmt.Errorf("unable to match a printer suitable for the output format %q (-o), allowed formats are: json,name,wide,yaml", g.output)
	}
	if g.all && len(names) > 0 {
		return errors.New("a resource cannot be retrieved by name across all namespaces (-A)")
	}
	g.namespace = namespaceOf(g.namespace)
	r, sources, err := g.db.answering(ctx, g.streams.ErrOut, typ, g.namespace, g.all, selector)
	if err != nil {
		return err
	}
	defer r.Close()
	found := map[string]*unstructured.Unstructured{}
	for _, st := range sources {
		for _, key := range keysOf(st, g.namespace, names) {
			err := r.Objects(ctx, live.Query{Source: st.Source, Key: key, Secrets: g.secrets}, func(u *unstructured.Unstructured) error {
				if selector.Matches(labels.Set(u.GetLabels())) && (g.all || u.GetNamespace() == "" || u.GetNamespace() == g.namespace) {
					found[u.GetNamespace()+"/"+u.GetName()] = u
				}
				return nil
			})
			if err != nil && (key == "" || !errors.Is(err, live.ErrNotFound)) {
				return err
			}
		}
		if !st.Synced {
			continue // answering has said so
		}
		fmt.Fprintf(g.streams.ErrOut, "%s: %d objects as of resourceVersion %s, confirmed by the server %s\n", st.Source, st.Objects, st.ResourceVersion, confirmedAgo(st))
	}
	objs, missing := pick(found, names)
	if len(objs) > 0 || len(names) == 0 {
		var out bytes.Buffer // the printers do not return errors of the writer
		if err := g.print(&out, sources[0], objs, len(names) == 1); err != nil {
			return err
		}
		if _, err := out.WriteTo(g.streams.Out); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s %s not found in %s", sources[0].Source.Resource, strings.Join(missing, ", "), g.db.path)
	}
	return nil
}

// keysOf are the keys that a source may have objects of these names at, one that means all
// without names.
func keysOf(st boltstore.State, namespace string, names []string) (keys []string) {
	if len(names) == 0 {
		return []string{""}
	}
	for _, name := range names {
		if st.Scope != boltstore.ScopeCluster {
			keys = append(keys, namespace+"/"+name)
		}
		if st.Scope != boltstore.ScopeNamespaced {
			keys = append(keys, name)
		}
	}
	return keys
}

func notInFile(typ, path string, states []boltstore.State) error {
	types := typesIn(states)
	if len(types) == 0 {
		return fmt.Errorf("%w; it has no types at all", unknownType(typ, path))
	}
	return fmt.Errorf("%w; it has: %s", unknownType(typ, path), strings.Join(types, ", "))
}

// pick returns the objects with the given names, or all without names, sorted by key.
// missing has the names without an object, quoted.
func pick(found map[string]*unstructured.Unstructured, names []string) (objs []*unstructured.Unstructured, missing []string) {
	have := map[string]bool{}
	for _, u := range found {
		if len(names) == 0 || slices.Contains(names, u.GetName()) {
			objs = append(objs, u)
			have[u.GetName()] = true
		}
	}
	slices.SortFunc(objs, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	for _, n := range names {
		if !have[n] {
			missing = append(missing, fmt.Sprintf("%q", n))
		}
	}
	return objs, missing
}

func (g *get) print(out io.Writer, st boltstore.State, objs []*unstructured.Unstructured, single bool) error {
	switch g.output {
	case "json", "yaml":
		var p printers.ResourcePrinter = &printers.JSONPrinter{}
		if g.output == "yaml" {
			p = &printers.YAMLPrinter{}
		}
		if single {
			return p.PrintObj(objs[0], out)
		}
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}}}
		for _, u := range objs {
			list.Items = append(list.Items, *u)
		}
		return p.PrintObj(list, out)
	case "name":
		for _, u := range objs {
			// As kubectl: pod/x, deployment.apps/x.
			name := strings.ToLower(u.GetKind())
			if st.Source.Group != "" {
				name += "." + st.Source.Group
			}
			fmt.Fprintln(out, name+"/"+u.GetName())
		}
		return nil
	}
	if len(objs) == 0 {
		where := " in " + g.namespace + " namespace"
		if g.all {
			where = ""
		}
		fmt.Fprintf(g.streams.ErrOut, "No resources found%s.\n", where)
		return nil
	}
	p := printers.NewTablePrinter(printers.PrintOptions{Wide: g.output == "wide", WithNamespace: g.all && objs[0].GetNamespace() != "", NoHeaders: g.noHeaders})
	table, err := tableOf(st, objs, metav1.Now().Time)
	if err != nil {
		return err
	}
	return p.PrintObj(table, out)
}
