package apifile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// source answers a request.
type source struct {
	*boltstore.Store
	t     *kubeapi.Type
	st    boltstore.State
	known []fields.Requirement // that its objects were selected by
	few   bool                 // are read at a time
}

// pick finds the source that answers, and states its age.
func (s *storage) pick(t *kubeapi.Type, sel kubeapi.Selection) (*source, error) {
	return s.pickThat(t, func(st boltstore.State) bool {
		known := selectedBy(st.Source)
		return covers(st.Source, sel) &&
			!slices.ContainsFunc(sel.Fields.Requirements(), func(r fields.Requirement) bool {
				return !t.Selectable(r.Field) && !slices.Contains(known, r) // the file's objects do not have the field
			})
	})
}

// pickPart is pick for one object, of a source that does not have all that could have its
// name: one that shows that it is there, and could not show that it is not.
func (s *storage) pickPart(t *kubeapi.Type, namespace, key string) (*source, error) {
	left := !slices.ContainsFunc(s.kinds, func(k *kind) bool {
		return slices.ContainsFunc(k.sources, func(st boltstore.State) bool { return st.InUse })
	})
	return s.pickThat(t, func(st boltstore.State) bool {
		if !st.Synced || !left && !st.InUse || st.Source.Namespace != "" && st.Source.Namespace != namespace {
			return false
		}
		store, err := s.db.View(st.Source)
		if err != nil {
			return false
		}
		obj, _, err := store.GetAt(key)
		return err == nil && obj != nil
	})
}

// pickThat is pick for the first source that fits.
func (s *storage) pickThat(t *kubeapi.Type, fits func(st boltstore.State) bool) (*source, error) {
	if t.Group == "" && t.Plural == "secrets" && !s.opts.Secrets {
		return nil, kubeapi.NotHere(apierrors.NewForbidden(t.GroupResource(), "",
			errors.New("the file's Secrets are not served")))
	}
	var kept []string
	for _, k := range s.kinds {
		if k.Type != t {
			continue
		}
		for _, st := range k.sources {
			kept = append(kept, st.Source.String())
			if !fits(st) {
				continue
			}
			if _, err := strconv.ParseUint(st.ResourceVersion, 10, 64); err != nil && st.Synced {
				continue
			}
			store, err := s.db.View(st.Source)
			if err != nil {
				return nil, unavailable(err, 1)
			}
			s.age(&st, nil)
			return &source{store, t, st, selectedBy(st.Source), false}, nil
		}
	}
	return nil, kubeapi.NotHere(unavailable(fmt.Errorf("the file does not have all that is asked for; it has %s",
		strings.Join(kept, ", ")), 10))
}

// covers says whether a source has all objects of a selection.
func covers(src boltstore.Source, sel kubeapi.Selection) bool {
	if src.Namespace != "" && src.Namespace != sel.Namespace {
		return false
	}
	if !kubeapi.Implies(sel.Labels, src.LabelSelector) {
		return false
	}
	return !slices.ContainsFunc(selectedBy(src), func(r fields.Requirement) bool {
		return !slices.Contains(sel.Fields.Requirements(), r)
	})
}

// selectedBy are the fields by which a source was selected. All its objects match them,
// even if the file has only metadata, or a transform has removed the fields.
func selectedBy(src boltstore.Source) []fields.Requirement {
	sel, err := fields.ParseSelector(src.FieldSelector)
	if err != nil || sel.Empty() {
		return nil
	}
	return sel.Requirements()
}
