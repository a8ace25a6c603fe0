package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/cache"
)

type historyCmd struct {
	streams   genericiooptions.IOStreams
	db        dbFile
	namespace string
	all       bool
	output    string
	since     time.Duration
	at        string
	secrets   bool
}

func newHistory(streams genericiooptions.IOStreams) *cobra.Command {
	h := &historyCmd{streams: streams}
	cmd := &cobra.Command{
		Use:   "history TYPE [NAME]",
		Short: "Show what happened to objects: when, by whom, and what changed",
		Long: "Show what happened to objects: when, by whom, and what changed. It goes back as far as the " +
			"file's journal: " +
			"see --journal-age and --journal-bytes of mirror. The objects of a type's first list are not in " +
			"the journal.",
		Example: `  kubewake history pods shop-1 -n web --db cache.db
  kubewake history pods -A --since 10m -o json
  kubewake history pods shop-1 -n web --at 2026-11-22T21:00:00Z`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.run(cmd.Context(), args[0], append(args, "")[1])
		},
	}
	h.db.addFlags(cmd)
	h.db.clusterFlag(cmd)
	f := cmd.Flags()
	namespaceFlag(cmd, &h.db, &h.namespace)
	completesTypes(cmd, &h.db, 2, &h.namespace)
	f.BoolVarP(&h.all, "all-namespaces", "A", false, "all namespaces")
	f.StringVarP(&h.output, "output", "o", "",
		"output format: json, with one version a line and the objects; text by default, and YAML with --at")
	f.DurationVar(&h.since, "since", 0,
		"only versions newer than this, such as 10m, by the machine's clock, which dated them")
	f.StringVar(&h.at, "at", "", "show the object as it was at this resourceVersion, or at this `time`, such as "+
		"2026-11-22T21:00:00Z")
	f.BoolVar(&h.secrets, "show-secrets", false, "show the data of secrets")
	return cmd
}

func (h *historyCmd) run(ctx context.Context, typ, name string) (err error) {
	if err := oneOf(h.output, "", "json"); err != nil {
		return err
	}
	if h.since < 0 {
		return errors.New("the time must be positive, such as 10m (--since)")
	}
	if h.all && name != "" {
		return errors.New("a resource cannot be retrieved by name across all namespaces (-A)")
	}
	moment, err := h.moment(name)
	if err != nil {
		return err
	}
	h.namespace = namespaceOf(h.namespace)
	r, sources, err := h.db.answering(h.streams.ErrOut, typ, h.namespace, h.all, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	if !moment.IsZero() {
		return h.then(ctx, r.reader, sources[0], name, moment)
	}
	out, printed := bufio.NewWriter(h.streams.Out), false
	defer func() { err = cmp.Or(err, out.Flush()) }()
	for _, st := range sources {
		sayConfirmed(h.streams.ErrOut, st)
		err := r.history(ctx, query{source: st, secrets: h.secrets}, func(v objectVersion) error {
			if !h.wants(v, name) {
				return nil
			}
			printed = true
			return h.print(out, v)
		})
		if err != nil {
			return err
		}
	}
	if !printed {
		fmt.Fprintf(h.streams.ErrOut, "The journal of %s has nothing about it.\n", h.db.path)
	}
	return nil
}

// wants says whether the command asks for a version. Cluster-scoped objects count for
// every namespace, as in get.
func (h *historyCmd) wants(v objectVersion, name string) bool {
	ns, n, err := cache.SplitMetaNamespaceKey(v.Key)
	return err == nil && (h.all || ns == "" || ns == h.namespace) && (name == "" || n == name) &&
		(h.since <= 0 || time.Since(v.Time) <= h.since)
}

func (h *historyCmd) print(out io.Writer, v objectVersion) error {
	if h.output == "json" {
		return json.NewEncoder(out).Encode(v)
	}
	what := strings.ToLower(string(v.Type))
	if v.FinalStateUnknown {
		what = "found deleted"
	}
	by := ""
	if len(v.Managers) > 0 {
		by = " by " + strings.Join(v.Managers, ", ")
	}
	_, err := fmt.Fprintln(out, escaped(fmt.Sprintf("%s  %s  %s  resourceVersion %s%s",
		v.Time.UTC().Format(time.RFC3339), v.Key, what, cmp.Or(v.ResourceVersion, "unknown"), by)))
	for _, c := range v.Diff {
		if err == nil {
			_, err = fmt.Fprintf(out, "  %s: %s -> %s\n", escaped(c.Path), escaped(short(c.Old)),
				escaped(short(c.New)))
		}
	}
	return err
}

// escaped returns text without control characters, which a terminal would obey. Anyone
// who can write an object may have put them there.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// short returns a field's value as JSON, cut to 120 characters.
func short(v any) string {
	if v == nil {
		return "none"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	const most = 120
	if text := []rune(string(b)); len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(b)
}
