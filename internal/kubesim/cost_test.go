package kubesim

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCost: each request counts as one kind, and its answer's bytes once. A broken
// bound is named; a loose one is not.
func TestCost(t *testing.T) {
	s := start(t, Options{})
	seed(t, s, 3)
	c := clientset(t, s, "").CoreV1().ConfigMaps("default")
	must(c.List(t.Context(), metav1.ListOptions{Limit: 2}))(t)
	must(c.List(t.Context(), metav1.ListOptions{Limit: 1}))(t)
	must(c.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=none"}))(t)
	must(c.Get(t.Context(), "c000", metav1.GetOptions{}))(t)
	watchLines(t, s, cmPath+"&resourceVersion=6").want("ADDED c002 7")
	watchLines(t, s, cmPath+"&resourceVersion=0").want("ADDED c000 5", "ADDED c001 6", "ADDED c002 7")
	records := s.Requests()
	var bytes int64
	for _, r := range records {
		bytes += r.BodyBytes
	}
	got, want := CostOf(records), Cost{Questions: 2, FullReads: 2, Watches: 1, Others: 1, Bytes: bytes}
	if got != want || bytes == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if d := got.Since(CostOf(records[:4])); d != (Cost{FullReads: 1, Watches: 1,
		Bytes: records[4].BodyBytes + records[5].BodyBytes}) {
		t.Errorf("of the watches: %+v", d)
	}
	for _, tc := range []struct {
		got, most Cost
		want      string
	}{
		{Cost{}, Cost{}, ""},
		{Cost{Questions: 2, Bytes: 100}, Cost{Questions: 2, Bytes: 150}, ""},
		{Cost{Questions: 3}, Cost{Questions: 2}, "3 questions, at most 2"},
		{Cost{FullReads: 1}, Cost{}, "1 full reads, at most 0"},
		{Cost{Bytes: 151}, Cost{Bytes: 150}, "151 bytes, at most 150"},
		{Cost{Watches: 2}, Cost{Watches: 5}, ""},
		{Cost{Watches: 2}, Cost{Watches: 60}, ""},
		{Cost{Forms: 1}, Cost{}, "1 questions for the form, at most 0"},
		{Cost{Others: 3}, Cost{Others: 2}, "3 others, at most 2"},
	} {
		if got := tc.got.Exceeds(tc.most); !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%+v within %+v: %q, want %q", tc.got, tc.most, got, tc.want)
		}
	}
}
