package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/kubewake/kubewake/boltstore"
)

type export struct {
	streams   genericiooptions.IOStreams
	db        dbFile
	namespace string
	all       bool
	selector  string
	folder    string
	force     bool
	owned     bool
	secrets   bool

	out     bytes.Buffer // all output comes at the end
	root    *os.Root     // of folder, if there is one
	written int
	failed  int            // objects that cannot be exported
	left    map[string]int // objects that are not exported, by reason
}

func newExport(streams genericiooptions.IOStreams) *cobra.Command {
	e := &export{streams: streams, left: map[string]int{}}
	cmd := &cobra.Command{
		Use:   "export TYPE...",
		Short: "Write objects as manifests that kubectl apply accepts",
		Long: "Write objects as manifests that kubectl apply accepts: without status and without the metadata that " +
			"the server sets.\n" +
			"A Job is without the selector that it got from the server, which has its UID.\n" +
			"Other fields that it has filled in stay, such as a service's clusterIP. Objects that a controller " +
			"owns are left out,\n" +
			"since their owner makes them again, and those that are being deleted.\n" +
			"With --to, characters that not every system has in the names of files, capitals among them, are " +
			"written as %XX.",
		Example: `  kubewake export deployments services configmaps -n web --db cache.db | kubectl apply -f -
  kubewake export deployments -A --to manifests`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), args) },
	}
	e.db.addFlags(cmd)
	e.db.clusterFlag(cmd)
	f := cmd.Flags()
	namespaceFlag(cmd, &e.db, &e.namespace)
	completesTypes(cmd, &e.db, math.MaxInt, nil)
	f.BoolVarP(&e.all, "all-namespaces", "A", false, "all namespaces")
	f.StringVarP(&e.selector, "selector", "l", "", "only objects with these labels")
	f.StringVar(&e.folder, "to", "",
		"write a file for each object below this `folder`, TYPE/NAMESPACE/NAME.yaml; standard output by default")
	f.BoolVar(&e.force, "force", false, "replace files that exist (--to)")
	f.BoolVar(&e.owned, "owned", false, "with the objects that a controller owns, without their owners")
	f.BoolVar(&e.secrets, "show-secrets", false, "with secrets and their data")
	return cmd
}

func (e *export) run(ctx context.Context, types []string) (err error) {
	selector, err := labels.Parse(e.selector)
	if err != nil {
		return fmt.Errorf("the selector cannot be parsed (-l): %w", err)
	}
	e.namespace = namespaceOf(e.namespace)
	if e.folder != "" {
		if err := os.MkdirAll(e.folder, 0o700); err != nil {
			return err
		}
		if e.root, err = os.OpenRoot(e.folder); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.root.Close()) }()
	}
	for _, typ := range types {
		if err := e.typ(ctx, typ, selector); err != nil {
			return err
		}
	}
	for _, why := range []string{leftOwned, leftDeleting, leftSecret} {
		if n := e.left[why]; n > 0 {
			fmt.Fprintf(e.streams.ErrOut, "%d objects are left out: %s\n", n, why)
		}
	}
	if e.folder != "" {
		fmt.Fprintf(e.streams.ErrOut, "%s: %d files\n", e.folder, e.written)
	}
	if _, err = e.out.WriteTo(e.streams.Out); err == nil && e.failed > 0 {
		err = fmt.Errorf("%d objects could not be exported, and are named above", e.failed)
	}
	return err
}

// Why objects are left out.
const (
	leftOwned    = "a controller owns them (--owned exports them)"
	leftDeleting = "they are being deleted"
	leftSecret   = "they are secrets (--show-secrets exports them)"
)

func (e *export) typ(ctx context.Context, typ string, selector labels.Selector) error {
	r, sources, err := e.db.answering(e.streams.ErrOut, typ, e.namespace, e.all, selector)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, st := range sources {
		if !st.Synced {
			return fmt.Errorf("%s has no objects to export yet; run `kubewake mirror` until it is live", st.Source)
		}
		if st.Source.Form == boltstore.FormMetadata {
			return fmt.Errorf("%s has metadata only, and no objects to export", st.Source)
		}
		sayConfirmed(e.streams.ErrOut, st)
		q := query{source: st, namespace: within(st, e.namespace, e.all), secrets: e.secrets}
		err := r.objects(ctx, q, func(u *unstructured.Unstructured) error {
			if !selector.Matches(labels.Set(u.GetLabels())) || !e.all && u.GetNamespace() != "" &&
				u.GetNamespace() != e.namespace {
				return nil
			}
			if why := e.leaves(u); why != "" {
				e.left[why]++
				return nil
			}
			return e.write(st.Source, manifest(u))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leaves returns the reason why an object is left out, "" if it is not.
func (e *export) leaves(u *unstructured.Unstructured) string {
	switch {
	case u.GetDeletionTimestamp() != nil:
		return leftDeleting
	case metav1.GetControllerOf(u) != nil && !e.owned:
		return leftOwned
	case u.GroupVersionKind().Group == "" && u.GetKind() == "Secret" && !e.secrets:
		return leftSecret
	}
	return ""
}

// manifest removes the fields that the server sets from an object. It also removes
// owners: in another cluster they have other UIDs, and the object would be collected.
func manifest(u *unstructured.Unstructured) *unstructured.Unstructured {
	delete(u.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink",
		"managedFields", "ownerReferences"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	if manual, _, _ := unstructured.NestedBool(u.Object, "spec", "manualSelector"); !manual &&
		u.GroupVersionKind() == batchv1.SchemeGroupVersion.WithKind("Job") {
		withoutUID(u)
	}
	return u
}

// withoutUID removes the selector and the labels that the server gives a Job to find its
// pods. They have its UID, and a server refuses those of another Job.
func withoutUID(job *unstructured.Unstructured) {
	unstructured.RemoveNestedField(job.Object, "spec", "selector")
	for _, label := range []string{"controller-uid", "job-name", batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		unstructured.RemoveNestedField(job.Object, "metadata", "labels", label)
		unstructured.RemoveNestedField(job.Object, "spec", "template", "metadata", "labels", label)
	}
}

// mostName is the length of the longest name that leaves room for .yaml in that of a file.
const mostName = 250

// write writes an object, or names it and leaves it out if a manifest cannot hold it.
func (e *export) write(src boltstore.Source, u *unstructured.Unstructured) error {
	text, err := manifestText(u)
	if err != nil {
		e.cannot(src, u, err.Error())
		return nil
	}
	if e.root == nil {
		if e.out.Len() > 0 {
			e.out.WriteString("---\n")
		}
		e.out.Write(text)
		return nil
	}
	folder := src.Resource
	if src.Group != "" {
		folder += "." + src.Group
	}
	names := []string{folder, u.GetName()}
	if ns := u.GetNamespace(); ns != "" {
		names = []string{folder, ns, u.GetName()}
	}
	fit := true
	for i, n := range names {
		names[i] = fileName(n)
		fit = fit && n != "" && len(names[i]) <= mostName && len(content.IsPathSegmentName(n)) == 0
	}
	if fit {
		err = e.file(filepath.Join(names...)+".yaml", text)
	}
	if !fit || errors.Is(err, syscall.ENAMETOOLONG) {
		e.cannot(src, u, "its name cannot be that of a file; export it without --to")
		return nil
	}
	return err
}

// cannot names an object that is left out because it cannot be exported.
func (e *export) cannot(src boltstore.Source, u *unstructured.Unstructured, why string) {
	e.failed++
	name := cache.NewObjectName(u.GetNamespace(), u.GetName())
	fmt.Fprintln(e.streams.ErrOut, escaped(fmt.Sprintf("%s %s is left out: %s", src.Resource, name, why)))
}

// manifestText is an object as YAML. The library takes a next line (U+0085) for a line
// break, and refuses other characters that JSON has as they are; escaped it reads all.
func manifestText(u *unstructured.Unstructured) ([]byte, error) {
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return yaml.JSONToYAML(b.Bytes())
}

// device matches names that Windows keeps for devices.
var device = regexp.MustCompile(`^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

// fileName is a name as each system can have it in a folder, also one without colons, and
// one where case makes no difference. As in URLs, %XX is a byte.
func fileName(name string) string {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; !strings.Contains(plain, string(rune(c))) || i == 0 && device.MatchString(name) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// file writes a file below the folder. It replaces one only with --force.
func (e *export) file(file string, text []byte) error {
	if err := e.root.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	switch st, err := e.root.Lstat(file); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !e.force:
		return fmt.Errorf("%s exists; --force replaces it", filepath.Join(e.folder, file))
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file, so it is not replaced; choose another folder",
			filepath.Join(e.folder, file))
	}
	if err := e.put(file, text); err != nil {
		return err
	}
	e.written++
	return nil
}

// put writes a file whole, or not at all.
func (e *export) put(file string, text []byte) error {
	// no object has this name, nor another export, and one that was killed may have left it
	beside := filepath.Join(filepath.Dir(file), fmt.Sprintf(".kubewake-export-%d", os.Getpid()))
	if err := e.root.RemoveAll(beside); err != nil {
		return err
	}
	f, err := e.root.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = e.root.Rename(beside, file)
	}
	if err != nil {
		return errors.Join(err, e.root.Remove(beside))
	}
	return nil
}
