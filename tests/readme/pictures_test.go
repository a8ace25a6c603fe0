package readme

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPictures: each picture that a page shows is there, is small and well-formed, and
// has a title. docs/benchmarks.md shows all pictures, and the README one.
func TestPictures(t *testing.T) {
	shown := map[string]map[string]bool{}
	image := regexp.MustCompile(`!\[([^\]]+)\]\(([^)\s]+\.svg)\)`)
	for page, text := range pages(t) {
		shown[page] = map[string]bool{}
		for _, m := range image.FindAllStringSubmatch(text, -1) {
			path := filepath.Join(root, filepath.Dir(page), filepath.FromSlash(m[2]))
			shown[page][filepath.Base(path)] = true
			title, err := titleOf(path)
			if err != nil {
				t.Errorf("%s shows %s: %v", page, m[2], err)
			} else if title == "" {
				t.Errorf("%s has no title", m[2])
			}
			if info, err := os.Stat(path); err == nil && info.Size() > 60<<10 {
				t.Errorf("%s has %d bytes, more than 60 KiB", m[2], info.Size())
			}
		}
	}
	made, err := filepath.Glob(filepath.Join(root, "docs", "pictures", "*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if len(made) < 4 {
		t.Errorf("there are only %d pictures", len(made))
	}
	for _, path := range made {
		if !shown["docs/benchmarks.md"][filepath.Base(path)] {
			t.Errorf("docs/benchmarks.md does not show %s", filepath.Base(path))
		}
	}
	if n := len(shown["README.md"]); n != 1 {
		t.Errorf("the README shows %d pictures", n)
	}
}

// titleOf reads a picture to its end and returns its title.
func titleOf(path string) (title string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	in := xml.NewDecoder(f)
	for depth := 0; ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return strings.TrimSpace(title), nil
		}
		if err != nil {
			return "", err
		}
		switch e := token.(type) {
		case xml.StartElement:
			if depth == 1 && e.Name.Local == "title" {
				if err := in.DecodeElement(&title, &e); err != nil {
					return "", err
				}
				continue
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
}
