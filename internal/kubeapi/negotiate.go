package kubeapi

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mediaType is what a client accepts.
type mediaType struct {
	media  string
	params map[string]string
	weight float64
}

// accepted are the media types in an Accept header, those with the largest weight first.
func accepted(header string) (all []mediaType) {
	for part := range strings.SplitSeq(header, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		weight := 1.0
		if q, ok := params["q"]; ok {
			weight, _ = strconv.ParseFloat(q, 64) // what is no number is 0
		}
		all = append(all, mediaType{media, params, weight})
	}
	slices.SortStableFunc(all, func(a, b mediaType) int { return cmp.Compare(b.weight, a.weight) })
	return all
}

// negotiate picks the representation in the Accept header that the resource has, and that
// the client wants most: the first one of those with the largest weight.
func (r *Request) negotiate(verb string) (encoding, error) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = MediaJSON
	}
	var err error
	for _, m := range accepted(accept) {
		var enc encoding
		switch m.media {
		case MediaProto:
			enc.proto = true
		case MediaJSON, "*/*":
		case "application/*":
			if !r.Type.Custom {
				continue // as at a server, where another package looks at built-in types first
			}
		default:
			continue
		}
		as := m.params["as"]
		switch isMeta := m.params["g"] == metaKind.Group && m.params["v"] == metaKind.Version; {
		case as == "":
			if enc.proto && r.Type.Custom || r.Type.MetadataOnly {
				continue
			}
			return enc, nil
		case !isMeta:
		case as == tableKind.Kind:
			if enc.proto {
				continue
			}
			enc.table, err = r.table()
			return enc, err
		case as == metaKind.Kind, as == metaKind.Kind+"List":
			err = r.fitsVerb(verb, as == metaKind.Kind+"List")
			enc.partial = err == nil
			return enc, err
		}
	}
	if r.Type.Custom {
		r.enc.proto = strings.Contains(accept, MediaProto)
	}
	return r.enc, r.errNotAcceptable()
}

// fitsVerb fails if metadata is asked for as a list, and the verb answers with objects, or the
// other way round.
func (r *Request) fitsVerb(verb string, list bool) error {
	switch {
	case !list && (verb == "list" || verb == "deletecollection"):
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list "+
			"(*%s.%sList)", r.Type.goPackage(), r.Type.Kind))
	case list && (verb == "get" || verb == "watch"): // a server ends such a watch without a word
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not "+
			"a list (*%s.%s)", r.Type.goPackage(), r.Type.Kind))
	}
	return nil
}

// errNotAcceptable says which representations there are.
func (r *Request) errNotAcceptable() error {
	switch {
	case r.Type.MetadataOnly:
		return r.Type.errMetadataOnly()
	case r.Type.Custom:
		return notAcceptable("only the following media types are accepted: application/json, " +
			"application/vnd.kubernetes.protobuf")
	}
	return apiStatus(http.StatusNotAcceptable, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "+
		"application/json, application/vnd.kubernetes.protobuf, application/json;stream=watch, "+
		"application/vnd.kubernetes.protobuf;stream=watch")
}

func (t *Type) errMetadataOnly() error {
	return notAcceptable(fmt.Sprintf("of %s only the metadata is kept: they are served as PartialObjectMetadata "+
		"and as Table only", t.GroupResource()))
}

func notAcceptable(message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: "NotAcceptable", Message: message,
	}}
}
