package reflector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// page is a page of metadata.
type page struct {
	listed []listing.Object
	about  metav1.ListMeta
	size   int64         // bytes, unpacked
	took   time.Duration // from the request to the answer's end
	waited bool          // it was asked for callers of WaitForFresh
}

// metadata asks for a page of metadata by the caller's list function. soon gives it up once
// a bookmark would have come. A client whose requests cannot be seen lists whole objects.
func (r *requests) metadata(ctx context.Context, patience time.Duration, soon bool, o metav1.ListOptions) (
	p page, err error,
) {
	raw := &rawPage{of: r.source, only: &metadataOnly{soon: soon, kind: r.kind(),
		apiVersion: schema.GroupVersion{Group: r.source.Group, Version: r.source.Version}.String()}}
	if r.source.Form == boltstore.FormMetadata {
		raw.only.apiVersion, raw.only.kind = metav1.SchemeGroupVersion.String(), wire.PartialKind
	}
	began := r.clock.Now()
	list, size, err := r.measured(raw.in(ctx), patience, 0, o)
	kept, rawErr := raw.result()
	version, answered := raw.onlyOf()
	switch {
	case rawErr != nil:
		return p, rawErr
	case err != nil && answered:
		return p, fmt.Errorf("%w: the client does not understand an empty list: %v", errNoMetadata, err)
	case err != nil:
		return p, err
	}
	about, err := meta.ListAccessor(list)
	switch {
	case err != nil:
		return p, err
	case answered && about.GetResourceVersion() != version: // the server's own means nothing to the caller
		return p, fmt.Errorf("%w: the list function translates versions", errNoMetadata)
	}
	p = page{listed: kept, size: size, took: r.clock.Since(began)}
	p.about.ResourceVersion, p.about.Continue = listVersion(about), about.GetContinue()
	err = meta.EachListItem(list, func(obj runtime.Object) error { // whole objects
		m, err := meta.Accessor(obj)
		if err == nil {
			p.listed = append(p.listed, listing.Object{Namespace: m.GetNamespace(), Name: m.GetName(),
				UID: string(m.GetUID()), ResourceVersion: m.GetResourceVersion()})
		}
		return err
	})
	return p, err
}
