package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// TestDraw: saved figures are drawn as SVG with text as text, a line for each program.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	g := &measured.Growth{Machine: "a machine"}
	for _, pods := range []int{1_000, 10_000, 100_000} {
		s := measured.Size{Pods: pods, Lives: map[measured.Kind][]measured.Lives{},
			Limits: []measured.Limits{{Put: time.Second, Decode: time.Second, List: time.Second, ListBytes: 1000}}}
		for i, k := range lines {
			d := time.Duration(pods*(i+1)) * time.Microsecond
			r := measured.Report{Told: d, Synced: d, Memory: measured.Memory{Anon: int64(d)},
				Traffic: measured.Traffic{Bodies: int64(d)}}
			s.Lives[k] = []measured.Lives{{Restart: r}}
		}
		g.Add(&measured.Growth{Machine: g.Machine, Sizes: []measured.Size{s}})
	}
	saved := filepath.Join(dir, "growth.json")
	if err := g.Save(saved); err != nil {
		t.Fatal(err)
	}
	day := filepath.Join(dir, "edge-day.csv")
	if err := os.WriteFile(day, []byte("seconds,kubewake,client-go\n0,0,0\n3600,1000,2000\n86400,2000,30000\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{saved, day} {
		if err := draw(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, pic := range pictures {
		words := text(t, filepath.Join(dir, pic.file))
		for _, want := range []string{pic.title, "1,000", "100,000", "kubewake", "client-go, lists", "SQLite"} {
			if !strings.Contains(words, "|"+want+"|") {
				t.Errorf("%s does not say %q: %s", pic.file, want, words)
			}
		}
		if pic.limit != "" && !strings.Contains(words, "|limit: "+pic.limit+"|") {
			t.Errorf("%s does not show the limit: %s", pic.file, words)
		}
	}
	if words := text(t, filepath.Join(dir, "edge-day.svg")); !strings.Contains(words, "|20|") ||
		!strings.Contains(words, "|20 KB|") {
		t.Error("the day's axes:", words)
	}
}

// text returns the words of a picture.
func text(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	words := "|"
	for in := xml.NewDecoder(f); ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return words
		}
		if err != nil {
			t.Fatal(path, err)
		}
		if s, ok := token.(xml.CharData); ok && strings.TrimSpace(string(s)) != "" {
			words += string(s) + "|"
		}
	}
}
