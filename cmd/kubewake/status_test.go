package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/devicetest"
	"github.com/kubewake/kubewake/reflector"
)

// TestStatusOfAWrongClock: a time by an unconfirmed clock has no age in status, unless
// the user vouches for it.
func TestStatusOfAWrongClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path,
		boltstore.Options{Window: time.Nanosecond, Clock: devicetest.New(time.Now().Add(-3 * time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{})
	if err == nil {
		_, err = r.Commit("1", time.Time{})
	}
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{}, 100)
	h, err := s.Delivery.Claim("durable", func(boltstore.HandlerChange) { told <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	for reset, _ := h.ResetOwed(); h.Behind(); <-told {
		h.Acknowledge("", reset)
	}
	j := fifo.New(s, nil)
	for i := range 3 {
		if err := j.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u",
			ResourceVersion: fmt.Sprint(i + 2)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.Close()
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, `(?s)\sunknown time ago\n.*\n\S+ +\S+ +1 +unknown +0 .*\sunknown time ago\n$`},
		{[]string{"--trust-clock"}, `(?s)\s3h ago\n.*\n\S+ +\S+ +1 +3h0m\d+s +0 .*\s3h ago\n$`},
	} {
		var out bytes.Buffer
		cmd := newStatus(genericiooptions.IOStreams{Out: &out, ErrOut: &bytes.Buffer{}})
		cmd.SetArgs(append(tc.args, "--db", path))
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(tc.want).MatchString(out.String()) {
			t.Errorf("%v:\n%s", tc.args, out.String())
		}
	}
}

// TestNoSourcesInJSON: a program gets a list of sources, also from a file without any.
func TestNoSourcesInJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := db.Check()
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	var status, check bytes.Buffer
	cmd := newStatus(genericiooptions.IOStreams{Out: &status, ErrOut: io.Discard})
	cmd.SetArgs([]string{"-o", "json", "--db", path})
	if err := errors.Join(cmd.ExecuteContext(t.Context()), printJSON(&check, report)); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{status.String(), check.String()} {
		if !strings.Contains(out, `"sources": []`) {
			t.Error(out)
		}
	}
}

// TestDeeds: a mirror that goes on from the file says that nothing was compared, and since when.
func TestDeeds(t *testing.T) {
	st := reflector.State{Phase: reflector.PhaseLive, Resumes: 1}
	compared := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, st := range map[string]reflector.State{
		"live; resumes: 1, saved 0 B": st,
		"live, resumed and not compared; resumes: 1, saved 0 B": {Phase: st.Phase,
			Resumes: 1, Uncompared: true},
		"live, resumed and not compared since 2026-01-02T03:04:05Z; resumes: 1, saved 0 B": {Phase: st.Phase,
			Resumes: 1, Uncompared: true, Compared: compared},
	} {
		if got := deeds(st, compared); got != text {
			t.Errorf("%q, not %q", got, text)
		}
	}
}
