package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clientpager "k8s.io/client-go/tools/pager"

	"github.com/kubewake/kubewake/boltstore"
)

type compare struct {
	streams genericiooptions.IOStreams
	flags   *genericclioptions.ConfigFlags
	db      dbFile
	other   string
	all     bool
	content bool
	output  string
}

func newCompare(streams genericiooptions.IOStreams) *cobra.Command {
	c := &compare{streams: streams, flags: genericclioptions.NewConfigFlags(false)}
	cmd := &cobra.Command{
		Use:   "compare TYPE",
		Short: "Compare the objects of a type with the cluster's, or with another file's",
		Long: "Compare the objects of a type with the cluster's, or with another file's. The cluster is asked for " +
			"the whole list.\n" +
			"Each line is an object that is missing in the file, extra in it, older or newer than the other, " +
			"recreated (of another\n" +
			"UID), or different in content (--content). The exit code is 1 if there is any, 2 if the two cannot be " +
			"compared.\n" +
			"An object that changes while they are read counts as a difference. Only namespaces and labels that " +
			"both have are compared.",
		Example: `  kubewake compare pods -A --db cache.db
  kubewake compare configmaps -n web --content --with snapshot.db`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return exitCode{2, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			differ, err := c.run(cmd.Context(), args[0])
			switch {
			case err != nil:
				return exitCode{2, err}
			case differ:
				return exitCode{1, nil}
			}
			return nil
		},
	}
	c.flags.ClusterName = nil // --cluster names one of the file's
	c.flags.AddFlags(cmd.Flags())
	c.db.addFlags(cmd)
	c.db.clockFlag(cmd)
	c.db.clusterFlag(cmd)
	completesTypes(cmd, &c.db, 1, nil)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitCode{2, err} })
	f := cmd.Flags()
	f.StringVar(&c.other, "with", "", "compare with this `file`, not with the cluster")
	f.BoolVarP(&c.all, "all-namespaces", "A", false, "all namespaces")
	f.BoolVar(&c.content, "content", false,
		"compare the content of objects of one UID and resourceVersion, too, in the fields that the file can have; "+
			"a program's transform shows as a difference")
	f.StringVarP(&c.output, "output", "o", "", "json; a table by default")
	return cmd
}

// side is an object in the file or in the other place.
type side struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	content         [sha256.Size]byte
}

// difference is an object that differs between the two. File or Other is nil if it does
// not have the object.
type difference struct {
	Key   string `json:"key"` // namespace/name
	What  string `json:"what"`
	File  *side  `json:"file,omitempty"`
	Other *side  `json:"other,omitempty"`
}

func (c *compare) run(ctx context.Context, typ string) (differ bool, err error) {
	if err := oneOf(c.output, "", "json"); err != nil {
		return false, err
	}
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		namespace = metav1.NamespaceDefault // as in namespaceOf
	}
	file, sources, err := c.open(ctx, &c.db, typ, namespace)
	if err != nil {
		return false, err
	}
	defer file.Close()
	var of, with map[string]side
	if c.other != "" {
		of, with, err = c.both(ctx, file, sources, typ, namespace)
	} else if of, err = c.read(ctx, file.reader, sources, namespace, nil); err == nil {
		with, err = c.list(ctx, sources, namespace)
	}
	if err != nil {
		return false, err
	}
	found := differences(of, with)
	fmt.Fprintf(c.streams.ErrOut, "%d objects in the file, %d in the other, %d differences\n", len(of), len(with),
		len(found))
	return len(found) > 0, c.print(found)
}

// open returns the sources of a file that answer.
func (c *compare) open(ctx context.Context, db *dbFile, typ, namespace string) (*ofType, []boltstore.State, error) {
	r, sources, err := db.answering(c.streams.ErrOut, typ, namespace, c.all, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, st := range sources {
		if !st.Synced {
			return nil, nil, errors.Join(fmt.Errorf("%s: %s has nothing to compare yet; run `kubewake mirror` "+
				"until it is live", db.path, st.Source), r.Close())
		}
	}
	return r, sources, nil
}

// both returns the objects of the two files, of the namespaces and labels that both have.
func (c *compare) both(ctx context.Context, file *ofType, sources []boltstore.State, typ, namespace string) (
	of, with map[string]side, err error,
) {
	db := c.db
	db.path, db.flag = c.other, "--with"
	other, others, err := c.open(ctx, &db, typ, namespace)
	if err != nil {
		return nil, nil, err
	}
	defer other.Close()
	if !slices.ContainsFunc(sources, func(a boltstore.State) bool {
		return slices.ContainsFunc(others, func(b boltstore.State) bool { return overlap(a.Source, b.Source) })
	}) {
		return nil, nil, fmt.Errorf("%s and %s cannot be compared: they have %s of different namespaces or fields",
			c.db.path, c.other, typ)
	}
	if of, err = c.read(ctx, file.reader, sources, namespace, others); err == nil {
		with, err = c.read(ctx, other.reader, others, namespace, sources)
	}
	return of, with, err
}

// overlap says whether two sources may have the same objects. Sources with field
// selectors do if the selectors are equal, since an object may not show the fields.
func overlap(a, b boltstore.Source) bool {
	return a.FieldSelector == b.FieldSelector && (a.Namespace == "" || b.Namespace == "" || a.Namespace == b.Namespace)
}

// inOne says whether one of a file's sources would have an object of another file's.
// Without sources it is the cluster, which has all objects.
func inOne(sources []boltstore.State, of boltstore.Source, u *unstructured.Unstructured) (bool, error) {
	for _, st := range sources {
		if st.Source.Namespace != "" && st.Source.Namespace != u.GetNamespace() || !overlap(st.Source, of) {
			continue
		}
		selector, err := labels.Parse(st.Source.LabelSelector)
		if err != nil {
			return false, fmt.Errorf("the selector of %s: %w", st.Source, err)
		}
		if selector.Matches(labels.Set(u.GetLabels())) {
			return true, nil
		}
	}
	return len(sources) == 0, nil
}

// read returns the objects of a file's sources that the other file's sources cover, too.
func (c *compare) read(
	ctx context.Context, r *reader, sources []boltstore.State, namespace string, others []boltstore.State,
) (map[string]side, error) {
	has := map[string]side{}
	for _, st := range sources {
		fmt.Fprintf(c.streams.ErrOut, "%s: %s as of resourceVersion %s, confirmed by the server %s\n",
			r.path, st.Source, st.ResourceVersion, confirmedAgo(st))
		if c.content {
			sayLacks(c.streams.ErrOut, st)
		}
		q := query{source: st, namespace: within(st, namespace, c.all), secrets: c.content}
		err := r.objects(ctx, q, func(u *unstructured.Unstructured) error {
			shared, err := inOne(others, st.Source, u)
			if err != nil || !shared {
				return err
			}
			return c.note(has, u, namespace)
		})
		if err != nil {
			return nil, err
		}
	}
	return has, nil
}

// list returns the cluster's objects of the sources.
func (c *compare) list(ctx context.Context, sources []boltstore.State, namespace string) (map[string]side, error) {
	cfg, err := clientConfig(c.flags, func(*rest.Config) {})
	if err != nil {
		return nil, err
	}
	has := map[string]side{}
	for _, st := range sources {
		gv := schema.GroupVersion{Group: st.Source.Group, Version: st.Source.Version}
		of := st.Source.Namespace
		if of == "" && !c.all && st.Scope != boltstore.ScopeCluster {
			of = namespace
		}
		lw, _, err := listWatch(cfg, resource{gvr: gv.WithResource(st.Source.Resource), gvk: gv.WithKind(st.Kind)},
			of, st.Source.LabelSelector)
		if err != nil {
			return nil, err
		}
		p := clientpager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = st.Source.FieldSelector
			return cache.ToListerWatcherWithContext(lw).ListWithContext(ctx, o)
		})
		err = p.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				return err
			}
			u := &unstructured.Unstructured{Object: content}
			u.SetAPIVersion(st.APIVersion)
			u.SetKind(st.Kind)
			return c.note(has, u, namespace)
		})
		if err != nil {
			return nil, fmt.Errorf("%s cannot be listed: %w", st.Source, err)
		}
	}
	return has, nil
}

// note adds an object, if it is of the namespace that was asked for.
func (c *compare) note(has map[string]side, u *unstructured.Unstructured, namespace string) error {
	if !c.all && u.GetNamespace() != "" && u.GetNamespace() != namespace {
		return nil
	}
	s := side{UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion()}
	if c.content {
		b, err := json.Marshal(u.Object)
		if err != nil {
			return err
		}
		s.content = sha256.Sum256(b)
	}
	key := u.GetName()
	if ns := u.GetNamespace(); ns != "" {
		key = ns + "/" + key
	}
	has[key] = s
	return nil
}

// differences are sorted by key. JSON has a list, also if there are none.
func differences(file, other map[string]side) []difference {
	all := []difference{}
	for _, key := range sets.List(sets.KeySet(file).Union(sets.KeySet(other))) {
		a, inFile := file[key]
		b, inOther := other[key]
		switch {
		case !inFile:
			all = append(all, difference{key, "missing", nil, &b})
		case !inOther:
			all = append(all, difference{key, "extra", &a, nil})
		case a != b:
			all = append(all, difference{key, a.comparedWith(b), &a, &b})
		}
	}
	return all
}

// comparedWith says how the file's object differs from the other one.
func (s side) comparedWith(other side) string {
	if s.UID != other.UID {
		return "recreated"
	}
	switch order, err := resourceversion.CompareResourceVersion(s.ResourceVersion, other.ResourceVersion); {
	case err == nil && order < 0:
		return "older"
	case err == nil && order > 0:
		return "newer"
	}
	return "different"
}

func (c *compare) print(found []difference) error {
	if c.output == "json" {
		return printJSON(c.streams.Out, found)
	}
	if len(found) == 0 {
		return nil
	}
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "OBJECT\tIS\tFILE\tOTHER")
	version := func(s *side) string {
		if s == nil {
			return "-"
		}
		return s.ResourceVersion
	}
	for _, d := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", escaped(d.Key), d.What, version(d.File), version(d.Other))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := out.WriteTo(c.streams.Out)
	return err
}
