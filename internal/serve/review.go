package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

const (
	// reviewed bounds the answers of the server that are kept, of each kind.
	reviewed = 4096
	// yesFor and noFor are how long an answer is good without asking again. A yes is for
	// no longer than it is while offline.
	yesFor = time.Minute
	noFor  = 5 * time.Second
	// patience is how long a review may take.
	patience = 5 * time.Second
	// authenticated is the group that an API server adds to those of a certificate, unless the
	// certificate names the user or the group of callers that it does not know.
	authenticated, unauthenticated, anonymous = "system:authenticated", "system:unauthenticated", "system:anonymous"
)

// reviews keeps the server's answers.
type reviews struct {
	clock   clock.Clock
	offline time.Duration
	first   func(context.Context) error // whether the server may be asked
	answers func(context.Context) bool  // whether the server answers a small question
	// Guesses of tokens, which anybody can send, do not push out the server's
	// acceptances.
	yes  *cache.LRUExpireCache
	no   *cache.LRUExpireCache
	vain *cache.LRUExpireCache // errors of questions for which the server waits; see missed
	*outage
}

// review is an answer of the server.
type review struct {
	yes  bool
	why  string
	user authenticationv1.UserInfo // of the token, if the question was about one
	at   time.Time                 // when it was asked for
}

func newReviews(c clock.Clock, offline time.Duration) *reviews {
	return &reviews{clock: c, offline: offline, yes: cache.NewLRUExpireCacheWithClock(reviewed, c),
		no:   cache.NewLRUExpireCacheWithClock(reviewed, c),
		vain: cache.NewLRUExpireCacheWithClock(reviewed, c), outage: &outage{clock: c, slow: patience / 2}}
}

// errOffline: the server could not be asked, and has not recently allowed the same.
type errOffline struct{ cause error }

func (e *errOffline) Error() string { return e.cause.Error() }

// get returns the server's answer to a question. Questions are the same if their JSON is.
// The answer is a recent one or one that the server gives now. While the server cannot be
// asked, it is a yes no older than offline.
func (v *reviews) get(ctx context.Context, asked any, ask func(context.Context) (review, error)) (review, error) {
	key, err := questionOf(asked)
	if err != nil {
		return review{}, err
	}
	now := v.clock.Now()
	last, fresh := v.kept(key, now)
	if fresh {
		return last, nil
	}
	if err = v.resting(); err == nil {
		if kept, ok := v.vain.Get(key); ok {
			err = kept.(error)
		}
	}
	if err == nil {
		err = v.first(ctx)
		if err != nil && ctx.Err() == nil {
			v.failed(now, err)
		}
	}
	if err == nil {
		var got review
		asking, cancel := context.WithTimeout(ctx, patience)
		if got, err = ask(asking); err != nil && unreachable(err) && asking.Err() == nil {
			got, err = ask(asking) // over a connection that was not closed in the meantime
		}
		cancel()
		if err == nil {
			got.at = now
			v.reached()
			v.keep(key, got)
			return got, nil
		}
		if ctx.Err() != nil {
			return review{}, ctx.Err() // the caller left
		}
		if !unreachable(err) {
			return review{}, err
		}
		v.missed(ctx, key, now, err)
	}
	if last.yes && elapsed(last.at, now) < v.offline {
		return last, nil
	}
	return review{}, &errOffline{err}
}

// kept is the last answer, if there is one, and whether it is good without asking again. One
// that is not is a yes.
func (v *reviews) kept(key question, now time.Time) (last review, fresh bool) {
	if yes, ok := v.yes.Get(key); ok {
		last = yes.(review)
		return last, elapsed(last.at, now) < min(yesFor, v.offline)
	}
	if no, ok := v.no.Get(key); ok && elapsed(no.(review).at, now) < noFor {
		return no.(review), true
	}
	return review{}, false
}

// question is a hash of a question to the server.
type question [sha256.Size]byte

func questionOf(asked any) (question, error) {
	text, err := json.Marshal(asked)
	return sha256.Sum256(text), err
}

// aboutToken is what is asked about a token.
func aboutToken(token string) []string { return []string{"token", token} }

// missed notes that a review, asked for at the given time, was not answered. One that waited
// in vain may have waited for a webhook that knows nothing of its token. A stranger, who can
// send such tokens, must not keep the link from all others: so the server itself is asked.
// If it answers, it is not asked the same again for a while.
func (v *reviews) missed(ctx context.Context, key question, began time.Time, err error) {
	if v.clock.Since(began) >= v.slow && v.answers(ctx) {
		v.vain.Add(key, err, longPause)
		v.reached()
		return
	}
	v.failed(began, err)
}

// elapsed is the time from a to b, by the clock that says more: monotonic time stands still
// while the machine sleeps, and wall time can be set back.
func elapsed(a, b time.Time) time.Duration {
	return max(b.Sub(a), b.Round(0).Sub(a.Round(0)))
}

func (v *reviews) keep(key question, got review) {
	if got.yes {
		v.no.Remove(key)
		v.yes.Add(key, got, max(yesFor, v.offline))
		return
	}
	v.no.Add(key, got, noFor)
	v.yes.Remove(key)
}

// unreachable says whether err only means that the server did not answer.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// answers says whether the server answers a small question within a second.
func (l *Link) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience/5) // a stranger may leave meanwhile
	defer cancel()
	err := l.authn.RESTClient().Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status) // a refusal is an answer
}

// authenticate asks the server to whom a token belongs. The caller of whom nothing is known
// does not learn the server's address and this process's name, which are in errors.
func (l *Link) authenticate(ctx context.Context, token string) (authenticationv1.UserInfo, *apierrors.StatusError) {
	got, err := l.reviews.get(ctx, aboutToken(token), func(ctx context.Context) (review, error) {
		r, err := l.authn.TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			return review{}, err
		}
		return review{yes: r.Status.Authenticated && r.Status.User.Username != "", user: r.Status.User}, nil
	})
	var offline *errOffline
	switch {
	case errors.As(err, &offline):
		return got.user, unauthorized(fmt.Sprintf("the server cannot be asked about the token, and has not "+
			"accepted it within %s", l.reviews.offline))
	case err != nil:
		return got.user, apierrors.NewInternalError(fmt.Errorf("the server does not review the token: %s",
			apierrors.ReasonForError(err)))
	case !got.yes:
		return got.user, unauthorized("the server does not accept the token")
	}
	return got.user, nil
}

// authorize asks the server whether a caller may read something.
func (l *Link) authorize(r *http.Request, c *caller, p kubeapi.Path) *apierrors.StatusError {
	spec := l.asking(c)
	spec.ResourceAttributes = attributes(r, p)
	got, err := l.access(r.Context(), spec)
	a := spec.ResourceAttributes
	resource := schema.GroupResource{Group: a.Group, Resource: a.Resource}
	what := fmt.Sprintf("User %q cannot %s resource %q in API group %q", spec.User, a.Verb, a.Resource, a.Group)
	if a.Namespace != "" {
		what += fmt.Sprintf(" in the namespace %q", a.Namespace)
	} else {
		what += " at the cluster scope"
	}
	var offline *errOffline
	switch {
	case errors.As(err, &offline):
		return apierrors.NewForbidden(resource, p.Name,
			fmt.Errorf("%s while the server cannot be asked (%v): it has not allowed this within %s", what, offline,
				l.reviews.offline))
	case err != nil:
		return apierrors.NewForbidden(resource, p.Name, fmt.Errorf("%s: the server does not review it: %w", what, err))
	case !got.yes && got.why != "":
		return apierrors.NewForbidden(resource, p.Name, fmt.Errorf("%s: %s", what, got.why))
	case !got.yes:
		return apierrors.NewForbidden(resource, p.Name, errors.New(what))
	}
	return nil
}

// asking begins a question about a caller.
func (l *Link) asking(c *caller) authorizationv1.SubjectAccessReviewSpec {
	groups := c.user.Groups
	nobody := c.user.Username == anonymous || slices.Contains(groups, unauthenticated) // as a certificate may say
	if c.token == "" && !nobody && !slices.Contains(groups, authenticated) {
		groups = append(slices.Clip(groups), authenticated)
	}
	spec := authorizationv1.SubjectAccessReviewSpec{User: c.user.Username, Groups: groups, UID: c.user.UID}
	if len(c.user.Extra) > 0 {
		spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range c.user.Extra {
			spec.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	return spec
}

func (l *Link) access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (review, error) {
	return l.reviews.get(ctx, spec, func(ctx context.Context) (review, error) {
		r, err := l.authz.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec},
			metav1.CreateOptions{})
		if err != nil {
			return review{}, err
		}
		return review{yes: r.Status.Allowed && !r.Status.Denied, why: r.Status.Reason}, nil
	})
}

// whileAllowed ends a watch once a new one would be refused. It looks each minute, when
// the server must be asked again.
func (l *Link) whileAllowed(r *http.Request, c *caller, p kubeapi.Path) (*http.Request, context.CancelFunc) {
	ctx, end := context.WithCancel(r.Context())
	r = r.WithContext(ctx)
	timer := l.reviews.clock.NewTimer(yesFor)
	go func() {
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C():
			}
			now, err := c.gate(r)
			if err == nil {
				err = l.authorize(r, now, p)
			}
			if err != nil {
				end()
				return
			}
			timer.Reset(yesFor)
		}
	}()
	return r, end
}

// attributes are the attributes of a read that an API server would authorise.
func attributes(r *http.Request, p kubeapi.Path) *authorizationv1.ResourceAttributes {
	q := r.URL.Query()
	a := &authorizationv1.ResourceAttributes{
		Group: p.GroupVersion.Group, Version: p.GroupVersion.Version, Resource: p.Resource, Subresource: p.Subresource,
		Namespace: p.Namespace, Name: p.Name, Verb: p.Verb(r.Method, q),
	}
	if a.Group == "" && a.Resource == "namespaces" && a.Name != "" {
		a.Namespace = a.Name
	}
	if a.Verb == "get" {
		return a
	}
	if text := q.Get("fieldSelector"); text != "" {
		a.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: text}
		if sel, err := fields.ParseSelector(text); err == nil { // otherwise the read is refused later
			if name, ok := sel.RequiresExactMatch("metadata.name"); ok && len(content.IsPathSegmentName(name)) == 0 {
				a.Name = name
			}
		}
	}
	if text := q.Get("labelSelector"); text != "" {
		a.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: text}
	}
	return a
}
