package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
)

func newCompact(streams genericiooptions.IOStreams) *cobra.Command {
	var db dbFile
	var output string
	var after time.Duration
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Rewrite the file without its unused space",
		Long: "Rewrite the file without its unused space. No program may have it open.\n\n" +
			"With --collect-after, first remove sources that no program has used for that long. " +
			"You can interrupt the command at any time: the file keeps its content, except for what was removed.",
		Example: `  kubewake compact --db cache.db
  kubewake compact --db cache.db --collect-after 720h -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf(output, "", "json"); err != nil {
				return err
			}
			if cmd.Flags().Changed("collect-after") && after <= 0 {
				return errors.New("the time must be positive, such as 720h (--collect-after)")
			}
			o := db.options()
			var shown *bar
			if output == "" {
				shown = newBar(streams.ErrOut, db.path, progressbar.OptionShowBytes(true))
			}
			o.CollectAfter = after
			o.Logger = logger(func(line string) { shown.over(func() { fmt.Fprintln(streams.ErrOut, line) }) })
			o.TrustClock = true // the user who gives a time vouches for the clock
			c, err := boltstore.Compact(cmd.Context(), db.path, o, shown.to)
			shown.end()
			if err != nil {
				return flagOf(err)
			}
			if output == "json" {
				return printJSON(streams.Out, c)
			}
			for _, s := range c.Collected {
				fmt.Fprintf(streams.Out, "%s: removed, %d objects, last used %s\n", s.Source, s.Objects,
					s.Claimed.Format(time.RFC3339))
			}
			saved := "saved " + human(c.Before-c.After)
			if c.After > c.Before {
				saved = "grew by " + human(c.After-c.Before)
			}
			_, err = fmt.Fprintf(streams.Out, "%s: %s, was %s, %s\n", db.path, human(c.After), human(c.Before), saved)
			return err
		},
	}
	db.addFlags(cmd)
	cmd.Flags().DurationVar(&after, "collect-after", 0,
		"remove sources that no program has used for this long, such as 720h; keeps all by default")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json; text by default")
	return cmd
}

// human returns a number of bytes with a decimal unit, such as 1.5 MB.
func human(n int64) string {
	if n < 0 {
		return "-" + human(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n, " B")
	}
	f, unit := float64(n)/1000, 0
	for ; f >= 999.95 && unit < 3; unit++ {
		f /= 1000
	}
	return fmt.Sprintf("%.1f %s", f, []string{"kB", "MB", "GB", "TB"}[unit])
}
