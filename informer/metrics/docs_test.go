package metrics

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPageIsAnExample: the lines of docs/library.md are in an example, which compiles.
func TestPageIsAnExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("`((?:prometheus|informer)\\.\\w+\\([^`]*\\))`").FindAllStringSubmatch(string(page), -1)
	n := 0
	for _, s := range shown {
		if strings.Contains(s[1], "(db") || strings.Contains(s[1], "NewCollector") {
			n++
			if !strings.Contains(string(example), s[1]) {
				t.Errorf("no example has %s", s[1])
			}
		}
	}
	if n != 3 {
		t.Errorf("the page shows %d of 3", n)
	}
}
