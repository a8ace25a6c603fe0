package contract

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// Parameters of people, who read the answers.
func init() {
	codecs = append(codecs, []testCase{
		{"JSON for people", func(t *testing.T, f *fixture) {
			for _, path := range []string{f.configMaps(), f.widgets()} {
				nothing := f.get(t, path)
				f.create(t, path, "a")
				f.create(t, path, "b")
				for _, tc := range []struct {
					query, agent, accept string
					pretty               bool
				}{
					{"?pretty=true", "", jsonType, true},
					{"?pretty=1", "", jsonType, true},
					{"", "curl/8.5.0", "*/*", true},
					{"", "Wget/1.21", "*/*", true},
					{"", "Mozilla/5.0 (X11)", "*/*", true},
					{"", "", jsonType + ";pretty=1", true},
					{"?pretty=false", "curl/8.5.0", jsonType, false},
					{"?pretty=junk", "curl/8.5.0", jsonType, false},
					{"?pretty=", "kubectl", jsonType, false},
					{"?pretty=true", "", jsonType + partialSuffix + "," + jsonType + partialList, true},
					{"?pretty=true", "", jsonType + ";as=Table;v=v1;g=meta.k8s.io", true},
				} {
					for _, of := range []string{path, path + "/a", path + "/none", strings.Replace(path, f.namespace, "empty", 1)} {
						as := tc.accept
						if strings.Contains(as, partialList) {
							as = jsonType + partialList
							if of == path+"/a" || of == path+"/none" {
								as = jsonType + partialSuffix
							}
						}
						h := accept(as)
						if tc.agent != "" {
							h.Set("User-Agent", tc.agent)
						}
						a := f.do(t, http.MethodGet, of+tc.query, h, nil)
						var compact, pretty bytes.Buffer
						if err := json.Compact(&compact, a.body); err != nil {
							t.Fatalf("%s%s: %v: %s", of, tc.query, err, a.body)
						}
						if err := json.Indent(&pretty, compact.Bytes(), "", "  "); err != nil {
							t.Fatal(err)
						}
						if want := map[bool]string{true: pretty.String(), false: compact.String() + "\n"}[tc.pretty]; string(a.body) != want {
							t.Errorf("%s%s for %q as %s: got\n%s\nwant\n%s", of, tc.query, tc.agent, as, a.body, want)
						}
					}
				}
				from := decodeList(t, nothing.body).GetResourceVersion()
				watched := f.do(t, http.MethodGet, path+"?watch=true&timeoutSeconds=1&pretty=true&resourceVersion="+from, accept(jsonType), nil)
				if lines := bytes.Count(watched.body, []byte("\n")); lines != 2 {
					t.Errorf("%s: two events in %d lines: %s", path, lines, watched.body)
				}
			}
		}},
		{"a timeout that is none", func(t *testing.T, f *fixture) {
			for _, path := range []string{f.configMaps(), f.widgets()} {
				f.create(t, path, "a")
				for _, of := range []string{path + "?", path + "/a?", path + "?watch=false&"} {
					for timeout, want := range map[string]int{"abc": 400, "1": 400, "1s": 200, "-1s": 200, "0s": 200, "": 200} {
						if a := f.get(t, of+"timeout="+timeout); a.code != want || want == 400 && !strings.Contains(string(a.body), "invalid timeout specified in the request URL - time: ") {
							t.Errorf("%stimeout=%s: %d %s", of, timeout, a.code, a.body)
						}
					}
				}
				if a := f.get(t, path+"?watch=true&timeoutSeconds=1&timeout=abc"); a.code != 200 {
					t.Errorf("a watch of %s: %d %s", path, a.code, a.body)
				}
			}
		}},
	}...)
}
