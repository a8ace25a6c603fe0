package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// longestCompletion is how long a shell waits for a completion.
const longestCompletion = 5 * time.Second

// completes is a function of cobra's that completes an argument.
type completes = func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective)

// complete runs kubectl's completion on the file. Without an answer nothing is completed.
func (c *kubeClient) complete(cmd *cobra.Command, args []string, to string, kubectls completes) (
	[]string, cobra.ShellCompDirective,
) {
	c.ctx, c.streams.ErrOut = cmd.Context(), io.Discard // nothing else may be on the line
	c.names = true
	return inTime(func() (all []string, how cobra.ShellCompDirective) {
		how = cobra.ShellCompDirectiveNoFileComp
		_ = untilFatal(io.Discard, func() { all, how = kubectls(cmd, args, to) })
		err := c.Close()
		_ = err // it was only read
		return all, how
	})
}

// names lists the names of objects alone: it asks for metadata, and gives it the kind that
// kubectl's code looks for.
type names struct {
	next    http.RoundTripper
	sources []boltstore.State
}

// RoundTrip implements http.RoundTripper.
func (t names) RoundTrip(r *http.Request) (*http.Response, error) {
	p := kubeapi.ParsePath(r.URL.Path)
	if p.Resource == "" || p.Verb(r.Method, r.URL.Query()) != "list" {
		return t.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	var list metav1.PartialObjectMetadataList
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return nil, err
	}
	kind := metav1.TypeMeta{APIVersion: p.GroupVersion.String()}
	for _, st := range t.sources {
		if groupOf(st) == p.GroupVersion.WithResource(p.Resource).GroupResource() &&
			st.Kind != "PartialObjectMetadata" { // of a source that has not been told its kind
			kind.Kind = cmp.Or(kind.Kind, st.Kind)
		}
	}
	for i := range list.Items {
		list.Items[i] = metav1.PartialObjectMetadata{TypeMeta: kind,
			ObjectMeta: metav1.ObjectMeta{Name: list.Items[i].Name, Namespace: list.Items[i].Namespace}}
	}
	list.TypeMeta = metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: kind.Kind + "List"}
	body, err = json.Marshal(list)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// inTime completes nothing if the file's owner does not answer. The process then ends.
func inTime(complete func() ([]string, cobra.ShellCompDirective)) ([]string, cobra.ShellCompDirective) {
	type completion struct {
		all []string
		how cobra.ShellCompDirective
	}
	answer := make(chan completion, 1)
	go func() {
		all, how := complete()
		answer <- completion{all, how}
	}()
	select {
	case got := <-answer:
		return got.all, got.how
	case <-time.After(longestCompletion):
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completesTypes makes a command complete its first arguments, at most this many: a type,
// then names of its objects in the namespace. If there is no namespace, all are types.
func completesTypes(cmd *cobra.Command, db *dbFile, most int, namespace *string) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c := &kubeClient{streams: genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard}, db: *db,
			warnings: rest.NoWarnings{}}
		if namespace == nil {
			args = nil
		} else {
			c.namespace = *namespace
		}
		return c.complete(cmd, args, to, completion.ResourceTypeAndNameCompletionFunc(cmdutil.NewFactory(c)))
	}
}

// namespaces completes the namespaces of the file's objects. Only keys are read.
func (f *dbFile) namespaces(cmd *cobra.Command, _ []string, to string) ([]string, cobra.ShellCompDirective) {
	return inTime(func() (all []string, how cobra.ShellCompDirective) {
		how = cobra.ShellCompDirectiveNoFileComp
		r, err := f.read()
		if err != nil {
			return nil, how
		}
		defer r.Close()
		_, sources, err := f.ofCluster(r.status.Sources)
		_ = err // without sources nothing is completed
		for _, src := range sources {
			all = append(all, namespacesIn(cmd.Context(), r, src)...)
		}
		slices.Sort(all)
		return slices.DeleteFunc(slices.Compact(all), func(name string) bool {
			return !strings.HasPrefix(name, to)
		}), how
	})
}

func namespacesIn(ctx context.Context, r *reader, st boltstore.State) (names []string) {
	if st.Source.Namespace != "" {
		return []string{st.Source.Namespace}
	}
	if st.Scope == boltstore.ScopeCluster || !st.Synced {
		return nil
	}
	err := r.index(ctx, query{source: st}, cache.NamespaceIndex, "", func(v indexValue) error {
		names = append(names, v.Value)
		return nil
	})
	_ = err // another source may have some
	return names
}
