package informer

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubewake/kubewake/internal/leaktest"
)

// scenario is a program that uses an informer. It runs against client-go's and against
// ours, and notes what each does.
type scenario struct {
	name string
	o    Options
	run  func(s *side)
	// differs are the intended differences. Everything else that is noted is the same.
	differs []intended
}

// intended is a note that differs by intention.
type intended struct {
	what           string
	clientGo, file string
	// reason is the title of the item in docs/differences.md.
	reason string
}

// scenarios is the table.
func scenarios() []scenario {
	return slices.Concat(runScenarios, handlerScenarios, removalScenarios, resyncScenarios, changeScenarios,
		failureScenarios, optionScenarios, metricScenarios, lifeScenarios)
}

// TestAsClientGo: the informer does the same as client-go's, call by call, except for the
// differences in the table. Both run in a synctest bubble, so nothing depends on the
// machine.
func TestAsClientGo(t *testing.T) {
	warmUp(t)
	before := leaktest.Ours(nil)
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			clientGo, file := sc.notes(t, false), sc.notes(t, true)
			differs := map[string]intended{}
			for _, d := range sc.differs {
				differs[d.what] = d
			}
			for i := range max(len(clientGo), len(file)) {
				if i >= len(clientGo) || i >= len(file) || clientGo[i].what != file[i].what {
					t.Fatalf("note %d is of something else:\nclient-go: %q\nfile:      %q", i, clientGo, file)
				}
				what, want, got := file[i].what, clientGo[i].value, file[i].value
				d, meant := differs[what]
				delete(differs, what)
				switch {
				case !meant && got != want:
					t.Errorf("%s:\nclient-go: %s\nfile:      %s", what, want, got)
				case meant && (want != d.clientGo || got != d.file):
					t.Errorf("%s, which differs since %q:\nclient-go: %s, in the table: %s\nfile:      %s, in "+
						"the table: %s", what, d.reason, want, d.clientGo, got, d.file)
				case meant && got == want:
					t.Errorf("%s differs in the table only", what)
				}
			}
			for what := range differs {
				t.Errorf("%q is in the table and was not noted", what)
			}
		})
	}
	leaktest.None(t, "after all scenarios", before)
}

// warmUp makes things that exist once in the process and must not belong to a bubble.
func warmUp(t *testing.T) {
	t.Helper()
	s := &side{t: t, file: true, dir: t.TempDir(), src: newTableSource(), began: time.Now()}
	s.begin()
	s.create("a")
	s.start()
	eventually(t, "synced", s.inf.HasSynced)
	s.create("b")
	s.modify("a")
	s.delete("b")
	eventually(t, "stored", func() bool { return s.inf.GetStore().LastStoreSyncResourceVersion() == "4" })
	s.stop()
	s.closeFile()
	s.src.Shutdown()
}

// notes runs the scenario on one side.
func (sc scenario) notes(t *testing.T, file bool) (all []note) {
	synctest.Test(t, func(t *testing.T) {
		s := &side{t: t, file: file, o: sc.o, dir: t.TempDir(), src: newTableSource(), began: time.Now()}
		s.begin()
		sc.run(s)
		s.end()
		s.src.Shutdown()
		all = s.notes
	})
	return all
}

// title is an item of docs/differences.md.
var title = regexp.MustCompile(`(?m)^- \*\*(.+?)\*\*|^- So (\*\*.+?\*\*)`)

// TestDifferencesAreListed: each reason in the table is an item in docs/differences.md,
// and each item there on informers is shown by the table or by another test.
func TestDifferencesAreListed(t *testing.T) {
	doc, err := os.ReadFile("../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	items, _, _ := strings.Cut(string(doc), "\n## A stock informer over the file\n") // the rest is of other packages
	shown := maps.Clone(shownBy)
	inTable := map[string]bool{}
	for _, sc := range scenarios() {
		for _, d := range sc.differs {
			inTable[d.reason] = false
			if d.reason == "" {
				t.Errorf("%s: %s has no reason", sc.name, d.what)
			}
		}
	}
	for _, m := range title.FindAllStringSubmatch(items, -1) {
		item := strings.Trim(cmp.Or(m[1], m[2]), "*")
		if _, ok := inTable[item]; ok {
			inTable[item] = true
			delete(shown, item)
			continue
		}
		test, ok := shown[item]
		if !ok {
			t.Errorf("docs/differences.md has %q, which no scenario and no other test shows", item)
			continue
		}
		delete(shown, item)
		dir, name, _ := strings.Cut(test, " ")
		files, _ := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
		if !slices.ContainsFunc(files, func(file string) bool {
			b, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(b), "\nfunc "+name+"(")
		}) {
			t.Errorf("%q is said to be shown by %s, which is not there", item, test)
		}
	}
	for reason, ok := range inTable {
		if !ok {
			t.Errorf("the table has the reason %q, which is no item of docs/differences.md", reason)
		}
	}
	for item := range shown {
		t.Errorf("%q is shown by a test and not in docs/differences.md", item)
	}
}
