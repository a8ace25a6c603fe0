// Package session runs the terminal sessions shown in docs/ on a real API server, and
// compares the actual output with the page.
package session

import (
	"regexp"
	"slices"
	"strings"
)

// step is a command of a page, with the output that the page shows.
type step struct {
	host    string // before the prompt
	command string
	line    int // of the page, counted from 1
	shown   []string
}

var (
	fence  = regexp.MustCompile("^```(\\w*)$")
	prompt = regexp.MustCompile(`^(\w*)\$ (.+)$`)
)

// parse returns the steps in a page's blocks of the language console. A command whose
// line ends with a backslash continues on the next line.
func parse(page string) (steps []*step) {
	console := false
	var last *step
	goesOn := false
	for i, l := range strings.Split(page, "\n") {
		m := prompt.FindStringSubmatch(l)
		switch f := fence.FindStringSubmatch(l); {
		case f != nil:
			console, last = !console && f[1] == "console", nil
		case !console:
		case goesOn:
			last.command += "\n" + l
			goesOn = strings.HasSuffix(l, `\`)
		case m != nil:
			last = &step{host: m[1], command: m[2], line: i + 1}
			goesOn = strings.HasSuffix(l, `\`)
			steps = append(steps, last)
		case last != nil:
			last.shown = append(last.shown, l)
		}
	}
	return steps
}

// rewritten returns the page with other outputs.
func rewritten(page string, steps []*step, outputs [][]string) string {
	old := strings.Split(page, "\n")
	var lines []string
	at := 0
	for i, s := range steps {
		output := s.line + strings.Count(s.command, "\n")
		lines = append(append(lines, old[at:output]...), outputs[i]...)
		at = output + len(s.shown)
	}
	return strings.Join(append(lines, old[at:]...), "\n")
}

// constants are the parts of the output that differ from run to run, with their
// replacements.
var constants = []struct {
	varies *regexp.Regexp
	by     string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT[\d:.]+Z`), "TIME"},
	{regexp.MustCompile(`\b\w{3}, \d\d \w{3} \d{4} [\d:]+ [+]0000`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UID"}, // 816d in it is no age
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|[smhdy]))+\b`), "AGE"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\b\d+(\.\d+)? [kM]?B\b`), "SIZE"},
	{regexp.MustCompile(`\bprocess \d+`), "process NUMBER"},
	{regexp.MustCompile(`\b\d{3,}\b`), "NUMBER"},                            // versions, sizes
	{regexp.MustCompile(`\b(true|false) +\d+ +\d+ `), "$1 JOURNAL UNTOLD "}, // what has been told is stored later
	// A link that is cut resets a connection or refuses it.
	{regexp.MustCompile(`\boffline \(.*\)`), "offline (REASON)"},
	{regexp.MustCompile(`\bcannot be reached: .*`), "cannot be reached: REASON"},
	{regexp.MustCompile(`(\S) +`), "$1 "}, // columns are as wide as what is in them
}

// late is what kubectl says where a confirmation takes longer than its bound, as it may on
// a busy machine.
var late = regexp.MustCompile(`(?m)^Warning: this is what the file says; .*; the server did not confirm it within 5s\n`)

// constant is output without what differs from run to run.
func constant(lines []string) string {
	text := late.ReplaceAllString(strings.Join(lines, "\n")+"\n", "")
	for _, c := range constants {
		text = c.varies.ReplaceAllString(text, c.by)
	}
	// kubectl prints a warning once. Two that differ by an age are one where the ages are equal.
	var last string
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool {
		again := l == last && strings.HasPrefix(l, "Warning: ")
		last = l
		return again
	}), "\n")
}
