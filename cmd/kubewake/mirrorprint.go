package main

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// changed logs a line for each change of state.
func (m *mirror) changed(src *source, st reflector.State) {
	name, file := src.inf.Store().Source().String(), src.inf.Store().State()
	if src.tells(st.Phase) {
		m.logf("%s: %s at %s", name, withHint(st.String()), orNone(file.ResourceVersion))
	}
	if st.Phase == reflector.PhaseDenied {
		select {
		case src.denied <- struct{}{}:
		default:
		}
	}
	if st.Phase == reflector.PhaseLive {
		src.once.Do(func() {
			close(src.live)
			if m.auditNow {
				_ = src.inf.Audit() // it runs, or is about to end
			}
		})
		select {
		case src.confirmed <- struct{}{}:
		default:
		}
	}
}

// hints say what to do about a server's refusal, by a text that is in it.
var hints = []struct{ text, hint string }{
	{"is forbidden", "allow this user to get, list and watch it"},
	{"Unauthorized", "the server does not accept the credentials of the kubeconfig (--kubeconfig, --context)"},
	{"provide credentials", "the kubeconfig has no credentials that the server accepts (--kubeconfig, --context)"},
	{"x509:", "the kubeconfig's certificate authority is not the server's, " +
		"or the address is another server's (--kubeconfig, --context)"},
}

// withHint adds to a text what to do about the refusal in it.
func withHint(text string) string {
	for _, h := range hints {
		if strings.Contains(text, h.text) {
			return text + "; " + h.hint
		}
	}
	return text
}

// tells says whether the log has a line about a phase. A live source catches up for a moment
// at each read that waits for the server: the log would grow with each client.
func (s *source) tells(phase reflector.Phase) bool {
	s.logging.Lock()
	defer s.logging.Unlock()
	was, quiet := s.phase, s.quiet
	s.phase, s.quiet = phase, was == reflector.PhaseLive && phase == reflector.PhaseCatchingUp
	return !s.quiet && !(quiet && phase == reflector.PhaseLive)
}

func orNone(rv string) string {
	if rv == "" {
		return "no version yet"
	}
	return "resourceVersion " + rv
}

// confirmedAgo says how long ago the server confirmed a source, if the device's clock
// can tell.
func confirmedAgo(st boltstore.State) string {
	return ago(st.Confirmed, st.ConfirmedAge)
}

// ago says how long ago t was, in kubectl's form. A nil age means not known.
func ago(t time.Time, age *time.Duration) string {
	switch {
	case t.IsZero():
		return "never"
	case age == nil:
		return "unknown time ago"
	}
	return duration.HumanDuration(*age) + " ago"
}

// counter is a handler that counts events, and prints them with --events.
func (m *mirror) counter(src *source) cache.ResourceEventHandler {
	tell := func(what string, obj any) {
		src.told(what)
		if !m.events {
			return
		}
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			if obj = d.Obj; obj == nil {
				m.print(what, src, d.Key, "", "")
				return
			}
		}
		if o, err := meta.Accessor(obj); err == nil {
			key, _ := cache.MetaNamespaceKeyFunc(obj)
			m.print(what, src, key, string(o.GetUID()), o.GetResourceVersion())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell("ADDED", obj) },
		UpdateFunc: func(_, obj any) { tell("MODIFIED", obj) },
		DeleteFunc: func(obj any) { tell("DELETED", obj) },
	}
}

// print prints an event. The log says if events cannot be printed, such as on a full disk.
func (m *mirror) print(what string, src *source, key, uid, rv string) {
	of := src.inf.Store().Source()
	m.out.Lock()
	_, err := fmt.Fprintln(m.streams.Out, what, schema.GroupResource{Group: of.Group, Resource: of.Resource},
		escaped(key), uid, rv)
	said := m.unprinted
	m.unprinted = err != nil
	m.out.Unlock()
	if err != nil && !said {
		m.logf("events are lost, since they cannot be printed: %s", oneLine(err))
	}
}
