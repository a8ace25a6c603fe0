package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewake/kubewake/boltstore"
)

// metric has the facts about a metric that an expression depends on.
type metric struct {
	typ    string
	labels []string
}

// ofMirror are the metrics that only kubewake mirror has.
var ofMirror = map[string]metric{
	"kubewake_source_told_total":    {"counter", []string{"source", "type"}},
	"kubewake_requests_total":       {"counter", nil},
	"kubewake_response_bytes_total": {"counter", nil},
}

// described returns the collector's metrics and those of kubewake mirror.
func described(t *testing.T) map[string]metric {
	t.Helper()
	all := maps.Clone(ofMirror)
	command, err := os.ReadFile("../../cmd/kubewake/mirrorhttp.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, found := range regexp.MustCompile(`"(kubewake_\w+)"`).FindAllStringSubmatch(string(command), -1) {
		names = append(names, found[1])
	}
	if want := slices.Sorted(maps.Keys(ofMirror)); !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("the command has %q, not %q", names, want)
	}
	histograms := []*prometheus.Desc{fileSeconds, fileChanges, fileSizes}
	labels := regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
	for _, d := range descs {
		name, m := nameOf(d), metric{typ: "gauge"}
		switch {
		case slices.Contains(histograms, d):
			m.typ = "histogram"
		case strings.HasSuffix(name, "_total"):
			m.typ = "counter"
		}
		if found := labels.FindStringSubmatch(d.String()); found != nil && found[1] != "" {
			m.labels = strings.Split(found[1], ",")
		}
		all[name] = m
	}
	return all
}

var (
	tokens    = regexp.MustCompile(`"[^"]*"|\[[^\]]*\]|\{[^}]*\}|[A-Za-z_:][\w:]*|[0-9.]+|[()]|[-+*/<>=!,]+|\s+|.`)
	matcher   = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"`)
	words     = regexp.MustCompile(`\w+`)
	rates     = []string{"rate", "increase"}
	functions = append([]string{"histogram_quantile", "time", "vector", "sum", "max", "min", "count",
		"min_over_time"}, rates...)
	operators  = []string{"by", "or", "and", "unless"}
	everywhere = []string{"job", "instance"}
	// early counters rise while files are opened and informers are made. So the first scrape of
	// a process finds them above 0, which is no increase to Prometheus.
	early = []string{nameOf(fileFallbacks), nameOf(fileAsides), nameOf(sourceReindexed)}
)

// problems finds the mistakes in an expression: metrics and labels that do not exist,
// counters without a rate, rates of early counters and of gauges, quantiles of no histogram, parentheses. It
// returns the metrics that the expression uses, too.
func problems(expr string, all map[string]metric) (used, wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var open []string  // the functions that the place is in
	var known []string // labels of the metrics so far
	quantiles, buckets, les := 0, 0, 0
	last, of := "", ""
	type grouped struct{ labels []string }
	var groups []grouped
	toks := tokens.FindAllString(expr, -1)
	for i := 0; i < len(toks); i++ {
		tok := toks[i]
		if strings.TrimSpace(tok) == "" {
			continue
		}
		switch {
		case tok == "(":
			if last == "by" {
				end := i + slices.Index(toks[i:], ")")
				if end < i {
					say("a by without an end")
					return used, wrong
				}
				names := words.FindAllString(strings.Join(toks[i:end], " "), -1)
				if slices.Contains(names, "le") {
					les++
				}
				groups = append(groups, grouped{names})
				i, last = end, ")"
				continue
			}
			open = append(open, of)
			of = ""
		case tok == ")":
			if len(open) == 0 {
				say("a parenthesis too many")
				return used, wrong
			}
			open = open[:len(open)-1]
		case tok[0] == '[':
			if fn := lastOf(open); !slices.Contains(rates, fn) && fn != "min_over_time" {
				say("a range in %q", fn)
			}
		case tok[0] == '{':
			for _, m := range matcher.FindAllStringSubmatch(tok, -1) {
				if !slices.Contains(known, m[1]) {
					say("%s has no label %s", last, m[1])
				}
			}
			if left := strings.Trim(matcher.ReplaceAllString(tok[1:len(tok)-1], ""), " ,"); left != "" {
				say("%s is no matcher", left)
			}
		case slices.Contains(operators, tok):
		case slices.Contains(functions, tok):
			of = tok
			if tok == "histogram_quantile" {
				quantiles++
			}
		case strings.HasPrefix(tok, "kubewake_"):
			name, suffix := tok, ""
			m, ok := all[name]
			for _, s := range []string{"_bucket", "_sum", "_count"} {
				if cut, is := strings.CutSuffix(tok, s); !ok && is {
					if h, there := all[cut]; there && h.typ == "histogram" {
						m, ok, name, suffix = h, true, cut, s
					}
				}
			}
			switch counts := m.typ == "counter" || suffix != ""; {
			case !ok:
				say("there is no %s", tok)
			case m.typ == "histogram" && suffix == "":
				say("%s is a histogram", tok)
			case slices.Contains(early, name):
				if slices.Contains(rates, lastOf(open)) {
					say("%s in %q: it may begin above 0", tok, lastOf(open))
				}
			case counts != slices.Contains(rates, lastOf(open)) && !strings.Contains(expr, tok+" > 0"):
				say("%s in %q", tok, lastOf(open))
			}
			if suffix == "_bucket" {
				buckets++
			}
			used = append(used, name)
			known = append(append(slices.Clone(everywhere), m.labels...), "le")
			for g := range groups { // what is summed by must be a label of it
				for _, l := range groups[g].labels {
					if !slices.Contains(known, l) || l == "le" && suffix != "_bucket" {
						say("%s has no label %s", tok, l)
					}
				}
			}
			groups = nil
		case regexp.MustCompile(`^[A-Za-z_]`).MatchString(tok):
			say("%s is unknown", tok)
		}
		last = tok
	}
	if len(open) > 0 {
		say("a parenthesis is not closed")
	}
	if quantiles != buckets || quantiles > les {
		say("%d quantiles of %d buckets by %d le", quantiles, buckets, les)
	}
	return used, wrong
}

func lastOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}

// TestExpressions: the checker finds mistakes.
func TestExpressions(t *testing.T) {
	all := described(t)
	for expr, good := range map[string]bool{
		`kubewake_file_bytes`: true,
		`sum by (le) (rate(kubewake_commit_duration_seconds_bucket{job=~"$job"}[5m]))`:              false,
		`histogram_quantile(0.9, sum by (le) (rate(kubewake_commit_duration_seconds_bucket[5m])))`:  true,
		`histogram_quantile(0.9, sum by (job) (rate(kubewake_commit_duration_seconds_bucket[5m])))`: false,
		`histogram_quantile(0.9, sum by (le) (rate(kubewake_commit_duration_seconds_sum[5m])))`:     false,
		`histogram_quantile(0.9, sum by (le) (kubewake_commit_duration_seconds_bucket))`:            false,
		`kubewake_commit_duration_seconds`:                 false,
		`rate(kubewake_commit_duration_seconds_count[5m])`: true,
		`kubewake_files`:                                                       false,
		`kubewake_file_bytes_sum`:                                              false,
		`rate(kubewake_file_bytes[5m])`:                                        false,
		`kubewake_file_written_bytes_total`:                                    false,
		`rate(kubewake_file_written_bytes_total[5m])`:                          true,
		`increase(kubewake_fallback_informers_total[5m])`:                      false,
		`sum(kubewake_fallback_informers_total)`:                               true,
		`rate(kubewake_file_written_bytes_total[5m]`:                           false,
		`rate(kubewake_file_written_bytes_total[5m])) `:                        false,
		`sum by (source) (kubewake_file_bytes)`:                                false,
		`sum by (source) (kubewake_source_objects{source=~"$source"})`:         true,
		`kubewake_file_bytes{source="pods/v1"}`:                                false,
		`kubewake_file_bytes{job}`:                                             false,
		`avg(kubewake_file_bytes)`:                                             false,
		`max by (source, phase) (kubewake_source_phase{phase=~"den|ref"}) > 0`: true,
		`sum(kubewake_file_bytes[5m])`:                                         false,
	} {
		if used, wrong := problems(expr, all); (len(wrong) == 0) != good || len(used) != 1 {
			t.Errorf("%s: %q, uses %q", expr, wrong, used)
		}
	}
}

// dashboard has the checked parts of docs/grafana/kubewake.json.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Definition string
			Datasource struct{ UID string }
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ Type, UID string }
		GridPos                  struct{ X, Y, W, H int }
		FieldConfig              struct{ Defaults struct{ Unit string } }
		Targets                  []struct {
			RefID, Expr string
			Datasource  struct{ UID string }
		}
	}
}

// TestDashboard: the dashboard is valid, each of its expressions is right, and it has
// each metric.
func TestDashboard(t *testing.T) {
	all := described(t)
	text, err := os.ReadFile("../../docs/grafana/kubewake.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 41 {
		t.Errorf("%q, %q, schema %d", d.Title, d.UID, d.SchemaVersion)
	}
	const source = "${datasource}"
	variables := map[string]bool{"__rate_interval": true, "__range": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if v.Type == "datasource" {
			continue
		}
		query := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if query == nil || v.Datasource.UID != source {
			t.Errorf("variable %s: %q of %q", v.Name, v.Definition, v.Datasource.UID)
			continue
		}
		if used, wrong := problems("max by ("+query[2]+") ("+query[1]+")", all); len(used) != 1 || len(wrong) > 0 {
			t.Errorf("variable %s: %q", v.Name, wrong)
		}
	}
	if !variables["datasource"] {
		t.Error("there is no variable for the data source")
	}
	shown, ids := map[string]bool{}, map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels are number %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("%s lies over %s at %d, %d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || p.Datasource.UID != source || p.FieldConfig.Defaults.Unit == "" ||
			len(p.Targets) == 0 {
			t.Errorf("panel %d lacks something: %+v", p.ID, p)
		}
		for _, target := range p.Targets {
			used, wrong := problems(target.Expr, all)
			if len(wrong) > 0 || len(used) == 0 || target.Datasource.UID != source {
				t.Errorf("%s: %s: %q", p.Title, target.Expr, wrong)
			}
			for _, name := range used {
				shown[name] = true
			}
			for _, v := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !variables[v[1]] {
					t.Errorf("%s: there is no variable %s", p.Title, v[1])
				}
			}
		}
	}
	for name := range all {
		if !shown[name] {
			t.Errorf("%s is on no panel", name)
		}
	}
}

// TestMetricsPage: docs/design/metrics.md has each metric with its type, and no other.
func TestMetricsPage(t *testing.T) {
	all := described(t)
	text, err := os.ReadFile("../../docs/design/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(kubewake_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(page,
		-1) {
		if rows[row[1]] != "" {
			t.Errorf("%s is there twice", row[1])
		}
		rows[row[1]] = row[2]
	}
	for name, m := range all {
		if _, mirror := ofMirror[name]; mirror && rows[name] == "" && strings.Contains(page, "`"+name+"`") {
			continue // a sentence has it
		}
		if rows[name] != m.typ {
			t.Errorf("the page calls %s a %q, not a %s", name, rows[name], m.typ)
		}
		delete(rows, name)
	}
	if len(rows) > 0 {
		t.Errorf("the page has %v", rows)
	}
}

// TestAlerts: the expressions of docs/grafana/alerts.yaml are right.
func TestAlerts(t *testing.T) {
	all := described(t)
	text, err := os.ReadFile("../../docs/grafana/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(alerts) < 10 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
	for _, alert := range alerts {
		if used, wrong := problems(alert[1], all); len(wrong) > 0 || len(used) == 0 {
			t.Errorf("%s: %q", alert[1], wrong)
		}
	}
}

// TestTypes: each metric has the type that its name implies.
func TestTypes(t *testing.T) {
	db := open(t, t.TempDir()+"/cache.db", boltstore.Options{})
	db.AddFallback("pods", false, os.ErrInvalid)
	families, err := registry(t, NewCollector(db)).Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := described(t)
	for _, f := range families {
		if all[f.GetName()].typ != strings.ToLower(f.GetType().String()) {
			t.Errorf("%s is a %s", f.GetName(), f.GetType())
		}
	}
	for name := range all {
		if base, ok := strings.CutSuffix(name, "_total"); ok && all[base].typ != "" {
			t.Errorf("OpenMetrics does not tell %s from %s", name, base)
		}
	}
	if len(families) < 12 {
		t.Errorf("only %d metrics", len(families))
	}
}
