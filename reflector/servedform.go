package reflector

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
)

// servedForm learns the form in which the server serves the source's objects. What is
// served of an object may change without a write, and so without a new version:
// with the defaults or the conversion of a custom resource, or with a server of
// another release. A relist compares versions only under the sign that the last
// one has learned. Under another sign, or none, it compares content.
//
// A server ends the watches of a custom resource when its definition changes. It
// resumes them at any version that it has seen since, such as that of a write
// that followed: then no list would notice what has changed on all others. So
// the sign is asked for again after a watch has ended before its time. A sign that
// is learned only then says nothing of the file's objects, so they are listed.
type servedForm struct {
	requests *requests
	store    *boltstore.Claimed
	clock    clock.PassiveClock

	mu   sync.Mutex
	due  int   // how often the sign is to be asked for before a watch
	wait int64 // how many seconds a watch lasts until then

	found     bool      // it is another; stays until everything has been listed
	notBefore time.Time // when a list for it that has failed is tried again
	errors    int       // relists and lists in a row that could not ask for it

	// API servers of two releases behind one address give their signs in turn. So a
	// relist for a sign with the same definition waits for the one before.
	listed time.Time     // the last relist for another sign
	pause  time.Duration // after it
}

const (
	// mostFormErrors is how many relists in a row may fail because the sign
	// cannot be had.
	mostFormErrors = 3
	// formLag is how long a watch lasts, in seconds, after which the sign is
	// asked for once more: it may lag behind what is served, and what is served
	// behind it.
	formLag = 30
	// mostFormLag is how long it lasts at most where the sign cannot be asked
	// for: the time doubles with each question that fails.
	mostFormLag = 600
	// leastFormPause is how long another sign waits after a relist for one. The pause
	// doubles up to mostFormLag, unless there was none for formPauses.
	leastFormPause = time.Minute
	formPauses     = time.Hour
)

// sign of the served form, "" where it cannot be learned. Where the definition of
// a custom resource may not be read, the one that the file knows is kept, so that
// the sign does not change with the permission.
func (f *servedForm) sign(ctx context.Context, late bool) (string, error) {
	sign, definition, err := f.requests.form(ctx, late)
	if err != nil || sign == "" {
		return "", err
	}
	if definition == "" {
		definition = definitionOf(f.store.ServedForm())
	}
	if definition == "" {
		return sign, nil
	}
	return sign + "/" + definition, nil
}

// doubtful says whether the sign is to be asked for, and if so how many seconds
// the next watch is to last.
func (f *servedForm) doubtful() (wait int64, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wait, f.due > 0 || f.found
}

// doubt: a watch has ended before its time. The sign is asked for before the next
// watch. If there is one to compare with, it is asked for once more before the watch
// that follows.
func (f *servedForm) doubt() {
	if !custom(f.store.Source().Group) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due, f.wait = 2, max(f.wait, formLag)
	if f.store.ServedForm() == "" {
		f.due = 1
	}
	f.note()
}

// takeUp goes on with a doubt of an earlier life.
func (f *servedForm) takeUp() {
	if f.store.FormDoubted() {
		f.doubt()
	}
}

// note has the next life know of the doubt. The caller holds mu.
func (f *servedForm) note() { f.store.DoubtForm(f.due > 0 || f.found) }

// changed says whether the form is another than that of the last relist, where
// that is in doubt. It is, too, if only now the sign can be learned. If the server
// does not say, it is asked before the next watch.
func (f *servedForm) changed(ctx context.Context) bool {
	if f.mustList() {
		return f.postponed() <= 0
	}
	if _, due := f.doubtful(); !due {
		return false
	}
	sign, err := f.sign(ctx, false)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.note()
	if err != nil {
		f.wait = min(2*f.wait, mostFormLag)
		return false
	}
	f.due--
	f.wait = formLag
	known := f.store.ServedForm()
	if sign == "" || sign == known {
		return false
	}
	if left := f.pause - f.clock.Since(f.listed); left > 0 && definitionOf(sign) == definitionOf(known) {
		f.due, f.wait = max(f.due, 1), max(int64(left/time.Second)+1, formLag)
		return false
	}
	f.found = true
	return true
}

// mustList says whether another form was found and not everything listed since.
func (f *servedForm) mustList() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found
}

// postpone puts off the list for another form, which has failed: the watch brings
// changes meanwhile.
func (f *servedForm) postpone() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.notBefore.IsZero() {
		f.wait = min(2*f.wait, mostFormLag)
	}
	f.notBefore = f.clock.Now().Add(time.Duration(f.wait) * time.Second)
}

// postponed is how long that list is put off, zero or less if it is not.
func (f *servedForm) postponed() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notBefore.Sub(f.clock.Now())
}

// definitionOf is what a sign has of the definition of a custom resource.
func definitionOf(sign string) string {
	_, definition, _ := strings.Cut(sign, "/")
	return definition
}

// late is the sign for a list of which a page has come: before, it would be asked
// for as often as a list is refused. A sign from before the list's end is right or
// old, so what has changed since is noticed. It is "" where it cannot be learned.
func (f *servedForm) late(ctx context.Context) string {
	f.mu.Lock()
	late := f.errors == 0 // else it is to be known whether it can be asked for
	f.mu.Unlock()
	sign, err := f.sign(ctx, late)
	f.answered(err)
	if err != nil {
		return ""
	}
	return sign
}

// answered notes whether the sign could be asked for.
func (f *servedForm) answered(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.errors++; err == nil {
		f.errors = 0
	}
}

// untold says whether relists fail since the sign cannot be had.
func (f *servedForm) untold() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errors >= mostFormErrors
}

// relisted: the file has the sign that was learned with the list.
func (f *servedForm) relisted(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due, f.wait = min(f.due, 1), formLag
	f.found, f.notBefore = false, time.Time{}
	f.note()
	if reason != ReasonForm {
		return
	}
	if f.clock.Since(f.listed) > formPauses {
		f.pause = 0
	}
	f.listed, f.pause = f.clock.Now(), min(max(2*f.pause, leastFormPause), mostFormLag*time.Second)
}

// builtIn are the groups of kube-apiserver that have a domain's name. Custom
// resources may be in others below k8s.io.
var builtIn = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
}

// custom says whether a group may have custom resources. Theirs are domain names.
func custom(group string) bool {
	return strings.Contains(group, ".") && !slices.Contains(builtIn, group)
}
