package main

import (
	"strings"
	"testing"
)

// TestIsMissing: only the API's own answer about an object says that it is not there. A path
// that is not served says nothing, and get then reads a copy of the file.
func TestIsMissing(t *testing.T) {
	for body, want := range map[string]bool{
		`{"kind":"Status","reason":"NotFound","details":{"name":"a"},"code":404}`: true,
		`{"kind":"Status","reason":"NotFound","details":{},"code":404}`:           false,
		"404 page not found\n": false,
		"":                     false,
	} {
		if got := isMissing(strings.NewReader(body)); got != want {
			t.Errorf("%q: %t", body, got)
		}
	}
}
