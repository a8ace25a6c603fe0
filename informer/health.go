package informer

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/claimants"
	"github.com/kubewake/kubewake/internal/objmeta"
	"github.com/kubewake/kubewake/reflector"
)

// Ready returns a readiness check: a healthz.Checker of controller-runtime, which can
// also be given to healthz.NamedCheck of k8s.io/apiserver. The program is ready if the
// file can be written and is at its path, and if each source has synced. With a maxAge
// above 0 the server must also have confirmed each source no longer ago than that. So a
// program that is offline for longer is not ready. A live source is confirmed about once
// a minute.
//
// Each check looks at the file's present informers and at those named here. Name those
// that must exist: an informer that is not made yet, or has ended, is only missed if it
// is named. A file without informers is ready: a manager that waits for its lease has
// none.
//
// The error names each source that is not ready, and says why, and how much its durable
// handlers have not done. That alone does not make a program unready; see [Informer.Lags].
// Without a DB the check always fails.
func Ready(db *boltstore.DB, maxAge time.Duration, informers ...cache.SharedIndexInformer) func(*http.Request) error {
	if db == nil {
		return noFile
	}
	return func(*http.Request) error {
		var errs []error
		if err := db.Err(); err != nil {
			errs = append(errs, err)
		}
		seen := map[any]bool{}
		for _, inf := range informers {
			known := reflect.ValueOf(inf).Comparable()
			if known && seen[inf] {
				continue
			}
			if known {
				seen[inf] = true
			}
			errs = append(errs, notReady(inf, maxAge))
		}
		for _, u := range claimants.Of(db) {
			if !seen[u] {
				errs = append(errs, notReady(u, maxAge))
			}
		}
		for _, f := range db.Fallbacks() {
			if f.Strict {
				errs = append(errs, fmt.Errorf("%s never syncs: %s", f.Type, f.Reason))
			}
		}
		return joined(errs)
	}
}

// noFile is the check of a program that has given no DB.
func noFile(*http.Request) error {
	return errors.New("informer: the check was given no file, but a nil DB: give it the one that boltstore.Open " +
		"has returned, or controllerruntime.FileOf the manager that controllerruntime.NewManager has returned")
}

// longFailing is how long commits may fail before a restart is worth trying.
const longFailing = 5 * time.Minute

// Live returns a liveness check, of the same form as [Ready]. It fails if a restart may
// help: if the file is closed, if damage to it has ended all writes, or if for five minutes
// no commit has succeeded. It also fails if the file was moved away or replaced, since no
// other program finds it then. A server that cannot be reached does not matter. Without a DB
// the check always fails.
func Live(db *boltstore.DB) func(*http.Request) error {
	if db == nil {
		return noFile
	}
	return func(*http.Request) error {
		return dead(db.Path(), db.Stats(), db.Err(), db.AtPath())
	}
}

// dead says why a restart may help a program whose file has this path, these stats and
// these errors.
func dead(path string, st boltstore.Stats, err, moved error) error {
	switch {
	case errors.Is(err, boltstore.ErrTaken), errors.Is(err, boltstore.ErrClosed), errors.Is(err, boltstore.ErrDamaged):
		return err
	case err != nil && st.Failing >= longFailing:
		return fmt.Errorf("commits have failed for %s: %w", duration.HumanDuration(st.Failing), err)
	case st.Writing >= longFailing:
		return fmt.Errorf("%s: the disk has not answered for %s; nothing is lost, and changes wait", path,
			duration.HumanDuration(st.Writing))
	}
	return moved
}

// notReady says why a source is not ready.
func notReady(user any, maxAge time.Duration) error {
	if objmeta.IsNil(user) {
		return errors.New("an informer that must be there is nil: make it before the check")
	}
	name := fmt.Sprintf("%T", user)
	var st reflector.State
	if u, ok := user.(interface{ State() reflector.State }); ok {
		st = u.State()
	}
	synced, pending := true, ""
	switch u := user.(type) {
	case *Informer:
		name = u.store.Source().String()
		if u.IsStopped() {
			return fmt.Errorf("%s has ended", name)
		}
		synced, pending = u.HasSynced(), pendingOf(u)
	case cache.SharedIndexInformer:
		name, synced = u.HasSyncedChecker().Name(), u.HasSynced()
		if u.IsStopped() {
			return fmt.Errorf("%s has ended", name)
		}
	case *reflector.Standalone:
		store := u.Store() // its informer can list it unless its contents cannot be served
		name, synced = store.Source().String(), store.State().Synced && store.Outdated() == "" && store.Err() == nil
	}
	why := ""
	if st.Phase != "" {
		why = ": " + st.String()
	}
	why += pending
	if !synced {
		return fmt.Errorf("%s has not synced%s", name, why)
	}
	if maxAge <= 0 || st.Phase == "" {
		return nil
	}
	switch age, ok := st.Age(time.Time{}); { // as of the State
	case !ok:
		return fmt.Errorf("%s: it is not known when the server last confirmed it%s", name, why)
	case age > maxAge:
		return fmt.Errorf("%s was confirmed %s ago, more than %s%s", name, duration.HumanDuration(age), maxAge, why)
	}
	return nil
}

// pendingOf says what the informer's durable handlers have not done.
func pendingOf(inf *Informer) (s string) {
	for _, l := range inf.Lags() {
		if l.Handler != "" && l.Pending > 0 {
			s += fmt.Sprintf(" (%v)", l)
		}
	}
	return s
}

// joined joins errors into one of one line, nil if there are none.
func joined(errs []error) error {
	var all failures
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

type failures []error

func (f failures) Unwrap() []error { return f }

func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}
