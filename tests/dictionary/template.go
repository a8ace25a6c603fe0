package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// templates are objects with places for what differs: <app> is a name, <hex 64> 64 digits,
// and <a|b> one of the words.
//
//go:embed objects
var templates embed.FS

// Letters of names that the server makes, and hexadecimal digits.
const (
	letters = "bcdfghjklmnpqrstvwxz2456789"
	digits  = "0123456789abcdef"
)

var place = regexp.MustCompile(`<([^<>]+)>`)

// maker fills the templates with choices that its seeds decide. Names are the same
// throughout an object. Most are of random letters: a dictionary has no use for names that
// only the samples have.
type maker struct {
	*rand.Rand
	names map[string]string
}

func newMaker(seed, n uint64) *maker {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, n))}
	version := fmt.Sprintf("%d.%d.%d", m.IntN(4), m.IntN(30), m.IntN(10))
	app := m.text(letters[:20], 4+m.IntN(9)) + m.of("", "-service", "-server", "-controller")
	repo := m.of("docker.io/library/", "ghcr.io/example/", "quay.io/example/", "registry.example.com/team/",
		"registry.k8s.io/", "gcr.io/example/") + app
	region := m.of("us-east-1", "eu-west-1", "europe-west1")
	m.names = map[string]string{
		"app": app, "hash": m.text(letters, 10), "version": "v" + version, "repo": repo,
		"namespace": m.of("default", "kube-system", "monitoring", "production", "team-a"),
		"image":     repo + ":" + m.of("", "v") + version, "owner": m.fill("<uid>"), "region": region,
		"zone": region + m.of("a", "b", "c"), "token": m.text(letters, 5),
		"node": m.of(fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", m.IntN(256), m.IntN(256)),
			fmt.Sprint("gke-cluster-default-pool-", m.text(digits, 8)), fmt.Sprint("node-", m.IntN(100))),
		"role": m.of("Role", "ClusterRole"),
	}
	return m
}

func (m *maker) of(words ...string) string { return words[m.IntN(len(words))] }

func (m *maker) text(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[m.IntN(len(alphabet))]
	}
	return string(b)
}

// fill fills the places of a string.
func (m *maker) fill(s string) string {
	return place.ReplaceAllStringFunc(s, func(s string) string {
		s = s[1 : len(s)-1]
		if name, ok := m.names[s]; ok {
			return name
		}
		if strings.Contains(s, "|") {
			return m.of(strings.Split(s, "|")...)
		}
		what, count, _ := strings.Cut(s, " ")
		n, _ := strconv.Atoi(count)
		switch what {
		case "hex":
			return m.text(digits, n)
		case "suffix":
			return m.text(letters, n)
		case "number":
			return fmt.Sprint(10_000_000 + m.IntN(90_000_000))
		case "ip":
			return fmt.Sprintf("10.%d.%d.%d", m.IntN(256), m.IntN(256), m.IntN(256))
		case "time":
			return time.Unix(1_735_000_000+m.Int64N(50_000_000), 0).UTC().Format(time.RFC3339)
		case "uid":
			h := m.text(digits, 32)
			return fmt.Sprintf("%s-%s-4%s-a%s-%s", h[:8], h[8:12], h[13:16], h[17:20], h[20:])
		}
		return "<" + s + ">"
	})
}

// object fills the places of a template in the order of its keys.
func (m *maker) object(v any) any {
	switch v := v.(type) {
	case string:
		return m.fill(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.object(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[m.fill(k)] = m.object(v[k])
		}
		return out
	}
	return v
}

// read returns the templates of one file.
func read(name string) (docs []map[string]any, err error) {
	b, err := templates.ReadFile("objects/" + name)
	for _, doc := range bytes.Split(b, []byte("\n---\n")) {
		var o map[string]any
		text, jsonErr := yaml.YAMLToJSON(doc)
		if err = errors.Join(err, jsonErr); err == nil {
			err = utiljson.Unmarshal(text, &o)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		docs = append(docs, o)
	}
	return docs, nil
}
