package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/objmeta"
)

// ErrUnidentified means that a source's identity could not be learned. It is
// never guessed.
var ErrUnidentified = errors.New("reflector: the source's identity cannot be learned: build the client from a " +
	"rest.Config given to reflector.WrapConfig, with list and watch functions that pass their context on, or state " +
	"the source in the options")

// probe travels in the context of a request that must not leave the process. The
// transport notes the request in it, and the answers to its own questions instead.
type probe struct {
	mu  sync.Mutex
	url *url.URL
	// other is another list that the caller's function has also asked for.
	other *url.URL
	// version is where the watch is to begin; "": at 0.
	version string
	// answered: the request is answered by a watch without events, so that the caller's
	// function goes on.
	answered bool
	// since: an answer to a question that was asked later will do.
	since time.Time
	// cluster: ask for the UID of kube-system.
	cluster bool
	told    clusterAnswer
	// form: ask for the sign of the served form.
	form bool
	sign string
	err  error // why the question failed
}

type probeKey struct{}

var errProbed = errors.New("reflector: request intercepted to learn its URL")

// Identify learns which list/watch lw is, and the address of its server, without a
// request. It fails with ErrUnidentified if it cannot, and with ctx's error if that
// ends first.
func Identify(ctx context.Context, lw cache.ListerWatcher, example runtime.Object) (boltstore.Source, string, error) {
	if objmeta.IsNil(lw) {
		return boltstore.Source{}, "", fmt.Errorf("%w (the ListerWatcher is nil)", ErrUnidentified)
	}
	p := &probe{}
	if err := intercept(ctx, lw, p); err != nil {
		return boltstore.Source{}, "", err
	}
	src, err := sourceOf(p.url)
	if err != nil {
		return boltstore.Source{}, "", err
	}
	more := &probe{answered: true}
	if err := intercept(ctx, lw, more); err != nil && ctx.Err() != nil {
		return boltstore.Source{}, "", err
	}
	for _, other := range []*url.URL{p.other, more.url, more.other} {
		if other != nil && !sameList(p.url, other) {
			return boltstore.Source{}, "",
				fmt.Errorf("%w (one watch is of several lists, such as %s and %s)", ErrUnidentified, p.url.Path,
					other.Path)
		}
	}
	src.Form = FormOf(example)
	server, _, _ := splitPath(p.url.Path)
	return src, p.url.Scheme + "://" + p.url.Host + server, nil
}

// FormOf is the form of objects like example: typed, unstructured or metadata.
func FormOf(example runtime.Object) boltstore.Form {
	switch example.(type) {
	case *unstructured.Unstructured:
		return boltstore.FormUnstructured
	case *metav1.PartialObjectMetadata:
		return boltstore.FormMetadata
	}
	return boltstore.FormTyped
}

// intercept starts a watch whose request the transport does not send. If caller ends
// first, the error is caller's.
func intercept(caller context.Context, lw cache.ListerWatcher, p *probe) error {
	// Exec and auth-provider plugins wrap outside our transport and may run.
	ctx, cancel := context.WithTimeout(context.WithValue(caller, probeKey{}, p), 15*time.Second)
	defer cancel()
	one := int64(1)
	w, err := giveUp(ctx, func() (watch.Interface, error) {
		return cache.ToListerWatcherWithContext(lw).WatchWithContext(ctx,
			metav1.ListOptions{ResourceVersion: cmp.Or(p.version, "0"), TimeoutSeconds: &one})
	}, stopWatch)
	if err == nil {
		stopWatch(w)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.url != nil:
		return nil
	case caller.Err() != nil:
		return fmt.Errorf("reflector: it was not learned what the client lists: %w", caller.Err())
	case err != nil:
		return fmt.Errorf("%w (%v)", ErrUnidentified, err)
	}
	return ErrUnidentified
}

// sourceOf reads a source from the URL of its list. Parameters that choose objects are
// part of it; those of the request itself, such as limit, are not. A new selector of
// the API needs a field in boltstore.Source, and a line here.
func sourceOf(u *url.URL) (boltstore.Source, error) {
	prefix, rest, err := splitPath(u.Path)
	if err != nil {
		return boltstore.Source{}, err
	}
	src, ok := listPath(rest)
	if !ok {
		return boltstore.Source{}, fmt.Errorf("%w (%s is not the path of a list)", ErrUnidentified, u.Path)
	}
	q := u.Query()
	src.Cluster = strings.Trim(prefix, "/")
	src.LabelSelector, src.FieldSelector, src.ShardSelector = q.Get("labelSelector"), q.Get("fieldSelector"),
		q.Get("shardSelector")
	inOrder(&src)
	return src, nil
}

// inOrder puts the terms of a source's selectors in order. A program that makes a selector
// of a map, as fields.Set does, has them in another order in each life.
func inOrder(src *boltstore.Source) {
	if s, err := fields.ParseSelector(src.FieldSelector); err == nil && len(s.Requirements()) > 1 {
		src.FieldSelector = s.String()
	}
	terms, err := labels.ParseToRequirements(src.LabelSelector)
	if err != nil {
		return
	}
	slices.SortFunc(terms, func(a, b labels.Requirement) int {
		return cmp.Or(cmp.Compare(a.Key(), b.Key()), cmp.Compare(a.String(), b.String()))
	})
	texts := make([]string, len(terms))
	for i, t := range terms {
		texts[i] = t.String()
	}
	src.LabelSelector = strings.Join(texts, ",")
}

// note notes the URL of a request. The caller holds mu.
func (p *probe) note(u *url.URL) {
	if p.url == nil {
		p.url = u
	} else if !sameList(p.url, u) {
		p.other = u
	}
}

// sameList says whether two URLs are of one list. A URL that is of no list is not of
// another one.
func sameList(a, b *url.URL) bool {
	of, err := sourceOf(a)
	other, otherErr := sourceOf(b)
	return err != nil || otherErr != nil || of == other && a.Scheme == b.Scheme && a.Host == b.Host
}

// splitPath separates the part before /api or /apis from the rest. A proxy in front of
// several clusters may need a prefix, which may have an /api or /apis, too. So the first
// rest that is the path of a list counts; without one, the first of all.
func splitPath(path string) (prefix string, rest []string, err error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	first := -1
	for i, p := range parts {
		if p != "api" && p != "apis" {
			continue
		}
		if first < 0 {
			first = i
		}
		if src, ok := listPath(parts[i:]); ok && (i == first || served.MatchString(src.Version)) {
			first = i
			break
		}
	}
	switch {
	case first < 0:
		return "", nil, fmt.Errorf("%w (%s has neither /api nor /apis)", ErrUnidentified, path)
	case first > 0:
		prefix = "/" + strings.Join(parts[:first], "/")
	}
	return prefix, parts[first:], nil
}

// served is the form of Kubernetes' versions.
var served = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// listPath reads the part of a list's path that begins with api or apis.
func listPath(rest []string) (src boltstore.Source, ok bool) {
	if rest[0] == "apis" && len(rest) > 1 {
		src.Group, rest = rest[1], rest[1:]
	}
	if len(rest) < 3 {
		return src, false
	}
	src.Version, rest = rest[1], rest[2:]
	if rest[0] == "namespaces" && len(rest) == 3 {
		src.Namespace, rest = rest[1], rest[2:]
	}
	src.Resource = rest[0]
	return src, len(rest) == 1
}
