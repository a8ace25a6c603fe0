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

// servedForm learns the form in which the server serves the source's objects. The served
// content of an object may change without a write, and so without a new version. The cause
// is another default or conversion of a custom resource, or another release of the server.
// A sign stands for the form. A relist compares only versions if the sign is the one that
// the last relist learned. Otherwise, or without a sign, it compares content.
//
// A server ends the watches of a custom resource when its definition changes. It resumes
// them at any version that it has seen since, such as that of a later write. Then no list
// would notice the changes of all other objects. So the sign is asked for again after a
// watch has ended early. If there was no sign before, the new one says nothing about the
// file's objects, and they are listed.
type servedForm struct {
	requests *requests
	store    *boltstore.Claimed
	clock    clock.PassiveClock

	mu   sync.Mutex
	due  int   // how often the sign must still be asked for before a watch
	wait int64 // how many seconds a watch lasts until then

	found     bool      // the form is another one; stays until everything has been listed
	notBefore time.Time // when a failed list for it is tried again
	errors    int       // relists and lists in a row that could not ask for it

	// API servers of two releases behind one address state their signs in turn. So a
	// relist for a sign with the same definition waits after the one before.
	listed time.Time     // the last relist for another sign
	pause  time.Duration // after it
}

const (
	// mostFormErrors is how many relists in a row may fail because the sign cannot be
	// learned.
	mostFormErrors = 3
	// formLag is how long a watch lasts, in seconds, before the sign is asked for once
	// more. The sign may lag behind the served form, and the form behind the sign.
	formLag = 30
	// mostFormLag is how long that watch lasts at most. If the sign cannot be asked for,
	// the time doubles with each failed question.
	mostFormLag = 600
	// leastFormPause is how long another sign waits after a relist for a sign. The pause
	// doubles up to mostFormLag, unless there was no such relist for formPauses.
	leastFormPause = time.Minute
	formPauses     = time.Hour
)

// sign returns the sign of the served form, "" if it cannot be learned. If the definition
// of a custom resource may not be read, the one that the file knows is kept. So the sign
// does not change with the permission.
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

// doubtful says whether the sign must be asked for and, if so, how many seconds the next
// watch lasts.
func (f *servedForm) doubtful() (wait int64, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wait, f.due > 0 || f.found
}

// doubt: a watch has ended early. The sign is asked for before the next watch. If there
// is one to compare with, it is asked for once more before the watch after that.
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

// note tells the next life of the doubt. The caller holds mu.
func (f *servedForm) note() { f.store.DoubtForm(f.due > 0 || f.found) }

// changed says, if the form is in doubt, whether it differs from that of the last relist.
// It also does if only now the sign can be learned. If the server does not say, it is
// asked before the next watch.
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

// mustList says whether another form was found and everything has yet to be listed.
func (f *servedForm) mustList() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found
}

// postpone puts off the list for another form after it has failed. Until then the watch
// brings changes.
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

// definitionOf returns the part of a sign about the definition of a custom resource.
func definitionOf(sign string) string {
	_, definition, _ := strings.Cut(sign, "/")
	return definition
}

// late returns the sign for a list of which one page has come. If it were asked for
// earlier, each refused list would cost a question. A sign from before the list's end is
// right or old, so later changes are noticed. It is "" if it cannot be learned.
func (f *servedForm) late(ctx context.Context) string {
	f.mu.Lock()
	late := f.errors == 0 // otherwise find out whether it can be asked for
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

// untold says whether relists fail because the sign cannot be learned.
func (f *servedForm) untold() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errors >= mostFormErrors
}

// relisted: the file now has the sign that was learned with the list.
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

// builtIn are the groups of kube-apiserver with a domain's name. Custom resources may be
// in other groups below k8s.io.
var builtIn = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
}

// custom says whether a group may have custom resources. The names of such groups are
// domain names.
func custom(group string) bool {
	return strings.Contains(group, ".") && !slices.Contains(builtIn, group)
}
