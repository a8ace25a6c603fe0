package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestUnreadableEvent: an event that the client cannot read, or that the server cannot
// send, does not hold up later events for as long as the server has it: everything is
// read instead, at first soon, then less and less often.
func TestUnreadableEvent(t *testing.T) {
	for name, forever := range map[string]bool{"one": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
				f.reflect()
				after(time.Second)
				f.takeTold()
				at := fmt.Sprint(f.sim.Revision())
				f.sim.FailNext(func(r *http.Request) bool {
					return isWatch(r) && (forever || r.URL.Query().Get("resourceVersion") == at)
				}, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":7}}}`+"\n")
				})
				f.sim.DropConnections()
				f.put("cm1", 10, 1)
				f.delete("cm2")
				f.other()
				f.forget()
				after(5 * time.Minute)
				if d := f.differs(); d != "" {
					t.Error(d)
				}
				if told := f.takeTold(); told != "Deleted cm2, Updated cm1" {
					t.Errorf("told %q", told)
				}
				st := f.State()
				if n := st.Relists[ReasonUnreadable]; n != 1 && !forever || forever && n > 3 ||
					st.Phase != PhaseLive && !forever {
					t.Errorf("%s, %v", st, st.Relists)
				}
				after(2 * time.Hour)
				if n := f.State().Relists[ReasonUnreadable]; n != 1 && !forever || n > 8 {
					t.Errorf("%d lists", n)
				}
			})
		})
	}
}

// TestRefusedVersion: a server that answers questions and opens no watch at the file's version
// does not hold up a source for ever: everything is read, less and less often while that
// does not help. It may not understand the version, as an aggregated server that has changed
// the form of its versions. Or it fails at the first event, or a proxy cuts that off.
func TestRefusedVersion(t *testing.T) {
	body := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, s)
		}
	}
	event := func(status string) http.HandlerFunc {
		return body(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"` +
			status + `}}` + "\n")
	}
	for name, answer := range map[string]http.HandlerFunc{
		"bad request": kubesim.Answer(apierrors.NewBadRequest("invalid resource version")),
		"invalid": kubesim.Answer(apierrors.NewInvalid(
			corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)),
		"internal":             kubesim.Answer(apierrors.NewInternalError(errors.New("no"))),
		"timeout":              kubesim.Answer(apierrors.NewTimeoutError("no", 0)),
		"bad request as event": event(`,"code":400,"reason":"BadRequest"`),
		"invalid as event":     event(`,"code":422,"reason":"Invalid"`),
		"timeout as event":     event(`,"code":504,"reason":"Timeout"`),
		"no code":              event(""),
		"no status":            body(`{"type":"ERROR","object":{"kind":"ConfigMap","apiVersion":"v1"}}` + "\n"),
		"no event":             body(""),
		"part of an event":     body(`{"type":"MODIFIED","object":{"kind":"ConfigMap","apiV`),
	} {
		for _, forever := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " for ever ", forever), func(t *testing.T) {
				bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
					f.reflect()
					after(time.Second)
					at := f.queue.AcceptedVersion()
					f.sim.FailNext(func(r *http.Request) bool {
						return isWatch(r) && (forever || r.URL.Query().Get("resourceVersion") == at)
					}, 1<<30, answer)
					f.sim.DropConnections()
					f.put("cm1", 10, 1)
					f.delete("cm2")
					after(5 * time.Minute)
					if d := f.differs(); d != "" {
						t.Error(d)
					}
					if st := f.State(); !forever && st.Phase != PhaseLive {
						t.Error(st)
					}
					after(2 * time.Hour)
					if n := f.State().Relists[ReasonUnreadable]; n != 1 && !forever || n > 8 {
						t.Errorf("%d lists", n)
					}
				})
			})
		}
	}
}

// TestUnreadableAtTheEnd: watches that end on time with an error, and bring nothing else, count
// as failed: everything is read instead.
func TestUnreadableAtTheEnd(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		f.sim.FailNext(isWatch, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			// the bubble's clock, which takes no time; without it the watch, of 3 s, ends early,
			// and it is time that is tested, no signal
			time.Sleep(2500 * time.Millisecond) // on the bubble's clock, see above
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"no"}}`+"\n")
		})
		f.sim.DropConnections()
		f.put("cm1", 10, 1)
		f.delete("cm2")
		after(10 * time.Minute)
		if d := f.differs(); d != "" {
			t.Errorf("%s: %s, lists %v", d, f.State(), f.State().Relists)
		}
	})
}

// TestRefusedLists: after watches that failed, a server that answers no list of everything does
// not keep a source from its watch, once that works again.
func TestRefusedLists(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		down := kubesim.Answer(apierrors.NewServiceUnavailable("no"))
		f.sim.FailNext(isWatch, 4, down)
		lists := 0
		f.sim.FailNext(func(r *http.Request) bool {
			// else it is a question
			list := strings.HasSuffix(r.URL.Path, "/configmaps") && !isWatch(r) && r.URL.Query().Get("limit") != "1"
			if list && r.URL.Query().Get("resourceVersionMatch") == "" {
				lists++
			}
			return list
		}, 1<<30, down)
		f.sim.DropConnections()
		f.put("cm1", 10, 1)
		f.delete("cm2")
		after(5 * time.Minute)
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		if st := f.State(); st.Phase != PhaseLive || lists == 0 || lists > 3 {
			t.Errorf("%s after %d lists", st, lists)
		}
	})
}

// TestRareRefusals: watches that are refused now and then cause no list, also if those in
// between end on time and bring nothing.
func TestRareRefusals(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{}, func(f *fixture) {
		f.reflect()
		for range 8 {
			after(30 * time.Minute)
			f.sim.FailNext(isWatch, 1, kubesim.Answer(apierrors.NewInternalError(errors.New("no"))))
		}
		if st := f.State(); st.Relists[ReasonUnreadable] != 0 {
			t.Error(st.Relists)
		}
	})
}

// TestWatchesThatMustWait: a server that refuses watches since it is busy, or does not allow
// them, is not sent lists for it.
func TestWatchesThatMustWait(t *testing.T) {
	for name, refusal := range map[string]*apierrors.StatusError{
		"busy":      apierrors.NewTooManyRequests("later", 7),
		"forbidden": apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
				f.reflect()
				after(time.Second)
				f.sim.FailNext(isWatch, 1<<30, kubesim.Answer(refusal))
				f.sim.DropConnections()
				f.put("cm1", 10, 1)
				after(time.Hour)
				if n := f.State().Relists[ReasonUnreadable]; n != 0 {
					t.Errorf("%d lists", n)
				}
			})
		})
	}
}
