package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	kubeget "k8s.io/kubectl/pkg/cmd/get"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"

	"github.com/kubewake/kubewake/boltstore"
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
	return onFile(streams, func(c *kubeClient) *cobra.Command {
		cmd := kubeget.NewCmdGet("kubewake", cmdutil.NewFactory(c), c.streams)
		cmd.Short = "Show objects in the file; no server is asked"
		cmd.Long = "Show objects in the file; no server is asked. TYPE means the same as to kubectl: a type of the " +
			"core group comes\n" +
			"before others of its name, then a built-in one. TYPE.GROUP names any type. If several sources have " +
			"all that you\n" +
			"ask for, the one that the server confirmed last answers. Standard error says which one, and how old " +
			"it is.\n\n" +
			"Several types at a time, -w, and all other flags and output formats of kubectl's get are kubectl's " +
			"own code. They show\n" +
			"the objects as the server has last shown them. What a program has written to its own store itself is " +
			"not among these."
		cmd.Example = `  kubewake get pods -n web -l app=shop --db cache.db
  kubewake get deployments.apps shop -n web -o yaml
  kubewake get pod/shop-1 deploy/shop cm -n web
  kubewake get pods -A --sort-by=.metadata.name --field-selector spec.nodeName=n1 -L app
  kubewake get pods -w`
		cmd.Flags().BoolVar(&c.secrets, "show-secrets", false,
			"show the data of secrets; with several types, -w or kubectl's own flags, secrets are left out without it")
		cmd.ValidArgsFunction = completion.ResourceTypeAndNameCompletionFunc(cmdutil.NewFactory(c))
		c.own = func(cmd *cobra.Command, args []string) (handled bool, err error) {
			f := cmd.Flags()
			if len(args) == 0 && !f.Changed("filename") && !f.Changed("kustomize") && !f.Changed("raw") {
				return true, errors.New("name a type to show; kubewake api-resources has those of the file")
			}
			typ, names, ok := oneType(args)
			selector := strings.TrimSpace(f.Lookup("selector").Value.String())
			if !ok || !ownFlags(f) || len(names) > 0 && selector != "" { // kubectl refuses a name with a selector
				return false, nil
			}
			g := &get{
				streams: streams, db: c.db, namespace: c.namespace, secrets: c.secrets,
				all:      cmdutil.GetFlagBool(cmd, "all-namespaces"),
				selector: selector, output: f.Lookup("output").Value.String(),
				noHeaders: cmdutil.GetFlagBool(cmd, "no-headers"),
			}
			err = g.run(cmd.Context(), typ, names)
			return !errors.Is(err, errCategory), err
		}
		return cmd
	})
}

// oneType is the one type whose objects a command line names, as TYPE [NAME...] or as
// TYPE/NAME... .
func oneType(args []string) (typ string, names []string, ok bool) {
	if len(args) == 0 || strings.Contains(args[0], ",") {
		return "", nil, false
	}
	typ, _, pairs := strings.Cut(args[0], "/")
	if !pairs {
		return typ, args[1:], !slices.ContainsFunc(args[1:], func(arg string) bool {
			return strings.Contains(arg, "/")
		})
	}
	for _, arg := range args {
		of, name, ok := strings.Cut(arg, "/")
		if !ok || of != typ || name == "" || strings.Contains(name, "/") {
			return "", nil, false
		}
		names = append(names, name)
	}
	return typ, names, typ != ""
}

// ownFlags says whether all given flags are among those that get has of its own.
func ownFlags(flags *pflag.FlagSet) bool {
	own := true
	flags.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "db", "keyset", "allow-unsafe-path", "trust-clock", "cluster", "namespace", "all-namespaces", "selector",
			"no-headers", "show-secrets":
		case "output":
			own = own && slices.Contains([]string{"", "json", "yaml", "name", "wide"}, f.Value.String())
		default:
			own = false
		}
	})
	return own
}

func (g *get) run(ctx context.Context, typ string, names []string) (err error) {
	selector, err := labels.Parse(g.selector)
	if err != nil {
		return fmt.Errorf("the selector cannot be parsed (-l): %w", err)
	}
	g.namespace = namespaceOf(g.namespace)
	r, sources, err := g.db.answering(g.streams.ErrOut, typ, g.namespace, g.all, selector)
	if err != nil {
		return err
	}
	defer r.Close()
	if namespaced := sources[0].Scope != boltstore.ScopeCluster; g.all && len(names) > 0 && namespaced {
		return errors.New("a resource cannot be retrieved by name across all namespaces (-A)")
	}
	out := newSpool(g.streams.Out)
	g.streams.Out = out
	defer func() { err = errors.Join(err, out.Close()) }()
	found := map[string]*unstructured.Unstructured{}
	printed := &rows{get: g, st: sources[0]}
	if g.output == "json" || g.output == "yaml" {
		printed.list = &lister{get: g}
		for _, st := range sources {
			sayLacks(g.streams.ErrOut, st)
		}
	}
	flowing := len(names) == 0 && len(sources) == 1
	take := func(u *unstructured.Unstructured) error {
		switch {
		case !selector.Matches(labels.Set(u.GetLabels())) || !g.all && u.GetNamespace() != "" &&
			u.GetNamespace() != g.namespace:
		case flowing:
			return printed.add(u)
		default:
			found[u.GetNamespace()+"/"+u.GetName()] = u
		}
		return nil
	}
	for _, st := range sources {
		for _, key := range keysOf(st, g.namespace, names) {
			q := query{source: st, key: key, namespace: within(st, g.namespace, g.all), secrets: g.secrets}
			err := r.objects(ctx, q, take)
			if err != nil && (key == "" || !errors.Is(err, errNotFound)) {
				return err
			}
		}
		if !st.Synced {
			continue // answering has said so
		}
		fmt.Fprintf(g.streams.ErrOut, "%s: %d objects as of resourceVersion %s, confirmed by the server %s\n",
			st.Source, st.Objects, st.ResourceVersion, confirmedAgo(st))
	}
	if flowing {
		return printed.end()
	}
	return g.printFound(out, sources[0], found, names)
}

// printFound prints the objects that were found, and fails if one of the names is not among
// them.
func (g *get) printFound(
	out io.Writer, st boltstore.State, found map[string]*unstructured.Unstructured, names []string,
) error {
	objs, missing := pick(found, names)
	if len(objs) > 0 || len(names) == 0 {
		var text bytes.Buffer // the printers do not return errors of the writer
		if err := g.print(&text, st, objs, len(names) == 1); err != nil {
			return err
		}
		if _, err := text.WriteTo(out); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s %s not found in %s", st.Source.Resource, strings.Join(missing, ", "), g.db.path)
	}
	return nil
}

// within is the namespace to read from a source, "" for all. Callers still filter: the
// source's scope may be unknown.
func within(st boltstore.State, namespace string, all bool) string {
	if all || st.Scope != boltstore.ScopeNamespaced {
		return ""
	}
	return namespace
}

// keysOf are the keys at which a source may have objects of these names. Without names it
// is one key that means all.
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

// errCategory: the name stands for several types.
var errCategory = errors.New("it is a category of types")

func notInFile(typ, path string, states []boltstore.State) error {
	if slices.ContainsFunc(states, func(st boltstore.State) bool { return slices.Contains(st.Categories, typ) }) {
		return fmt.Errorf("%w: %w", unknownType(typ, path), errCategory)
	}
	types := typesIn(states)
	if len(types) == 0 {
		return fmt.Errorf("%w; it has no types at all", unknownType(typ, path))
	}
	return fmt.Errorf("%w; it has: %s", unknownType(typ, path), strings.Join(types, ", "))
}

// pick returns the objects with the given names. As in kubectl, it keeps the order of the
// names and repeats. Without names it returns all, sorted by key. missing has the names
// without an object, quoted.
func pick(found map[string]*unstructured.Unstructured, names []string) (
	objs []*unstructured.Unstructured, missing []string,
) {
	all := slices.SortedFunc(maps.Values(found), byKey)
	if len(names) == 0 {
		return all, nil
	}
	for _, n := range names {
		have := len(objs)
		for _, u := range all {
			if u.GetName() == n {
				objs = append(objs, u)
			}
		}
		if len(objs) == have {
			missing = append(missing, fmt.Sprintf("%q", n))
		}
	}
	return objs, missing
}

func (g *get) print(out io.Writer, st boltstore.State, objs []*unstructured.Unstructured, single bool) error {
	switch g.output {
	case "json", "yaml":
		if single {
			return g.printer().PrintObj(objs[0], out)
		}
		return g.printList(out, objs)
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
		where := " in " + g.namespace + " namespace."
		if g.all || st.Scope == boltstore.ScopeCluster {
			where = ""
		}
		fmt.Fprintf(g.streams.ErrOut, "No resources found%s\n", where)
		return nil
	}
	p := g.tables(objs[0])
	table, err := tableOf(st, objs, metav1.Now().Time)
	if err != nil {
		return err
	}
	return p.PrintObj(table, out)
}

// printer prints objects in JSON or YAML.
func (g *get) printer() printers.ResourcePrinter {
	var p printers.ResourcePrinter = &printers.JSONPrinter{}
	if g.output == "yaml" {
		p = &printers.YAMLPrinter{}
	}
	return &printers.OmitManagedFieldsPrinter{Delegate: p} // --show-managed-fields is kubectl's own code
}

// printList prints a List in JSON or YAML.
func (g *get) printList(out io.Writer, objs []*unstructured.Unstructured) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List",
		"metadata": map[string]any{"resourceVersion": ""}}}
	for _, u := range objs {
		list.Items = append(list.Items, *u)
	}
	return g.printer().PrintObj(list, out)
}

func (g *get) tables(first *unstructured.Unstructured) printers.ResourcePrinter {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: g.output == "wide", WithNamespace: g.all &&
		first.GetNamespace() != "", NoHeaders: g.noHeaders})
}
