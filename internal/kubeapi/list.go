package kubeapi

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// gzipThreshold is the body size above which the server compresses.
const gzipThreshold = 128 << 10

const (
	// MessageExpired is that of a list of a state that is gone.
	MessageExpired = "The resourceVersion for the provided list is too old."
	// MessageInconsistent is that of an expired continue token. The answer has another one.
	MessageInconsistent = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

// Parameters are the parsed parameters of a list or watch.
type Parameters struct {
	internalversion.ListOptions
	Selection
}

// Parameters parses and checks the parameters of a list, watch or deletecollection.
func (r *Request) Parameters() (*Parameters, error) {
	q := &Parameters{}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion,
		&q.ListOptions); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	meant := q.ListOptions // as a server reads them
	internalversion.SetListOptionsDefaults(&meant, true)
	if errs := validation.ValidateListOptions(&meant, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	q.Labels, q.Fields = labels.Everything(), fields.Everything()
	if q.LabelSelector != nil {
		q.Labels = q.LabelSelector
	}
	if q.FieldSelector != nil {
		q.Fields = q.FieldSelector
	}
	q.Namespace = r.Namespace
	return q, r.Type.checkFields(q.Fields)
}

// checkFields refuses fields that cannot select objects here. A server may have more of
// them, such as the selectable fields of a custom resource.
func (t *Type) checkFields(sel fields.Selector) error {
	if sel.Empty() {
		return nil
	}
	for _, req := range sel.Requirements() {
		if t.Selectable(req.Field) || slices.Contains(t.SelectedBy, req.Field) {
			continue
		}
		if t.noFieldsOfItsOwn() {
			return NotHere(apierrors.NewBadRequest(fmt.Sprintf(
				`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, req.Field)))
		}
		return NotHere(apierrors.NewBadRequest("field label not supported: " + req.Field))
	}
	return nil
}

func (r *Request) list() error {
	p, err := r.Parameters()
	if err != nil {
		return err
	}
	q, err := p.query()
	if err != nil {
		return err
	}
	q.Messages = r.onlyMessages(&q.Selection)
	page, err := r.h.Storage.List(r.Context(), r.Type, q)
	if err == nil {
		err = r.WriteList(page, q)
	}
	var large *TooLargeError
	switch {
	case errors.As(err, &large):
		return errTooLarge(large)
	case errors.Is(err, ErrExpired):
		return errListExpired(p.Continue != "", q.From, q.Prefix())
	}
	return err
}

// onlyMessages says whether the answer takes nothing but the objects' protobuf messages.
func (r *Request) onlyMessages(sel *Selection) bool {
	return r.enc.proto && r.enc.table == nil && !r.Type.Custom && sel.Everything()
}

// query resolves which state the list shows.
func (p *Parameters) query() (Query, error) {
	q := Query{Selection: p.Selection, Limit: max(p.Limit, 0)} // one below 0 is none, as on a server
	if p.Continue != "" {
		from, token, err := decodeContinue(p.Continue, q.Prefix())
		if err != nil {
			return q, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
		}
		if p.ResourceVersion != "" && p.ResourceVersion != "0" {
			return q, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		q.From = from
		if token.ResourceVersion > 0 {
			q.At = uint64(token.ResourceVersion)
		}
		return q, nil
	}
	switch p.ResourceVersion {
	case "":
		return q, nil
	case "0":
		q.Limit = 0 // served from the watch cache, which does not page such lists
		return q, nil
	}
	n, err := parseVersion(p.ResourceVersion)
	if err != nil {
		return q, err
	}
	exact := p.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		p.ResourceVersionMatch == "" && q.Limit > 0 // the API before resourceVersionMatch
	if exact {
		q.At = n
	} else {
		q.Least = n
	}
	return q, nil
}

func errListExpired(paging bool, from, prefix string) error {
	if !paging {
		return apierrors.NewResourceExpired(MessageExpired)
	}
	err := apierrors.NewResourceExpired(MessageInconsistent)
	err.ErrStatus.Continue = encodeContinue(from, prefix, continueToken{ResourceVersion: -1})
	return err
}

// continueToken has the form of the real server's: rv is -1 for a list that may
// go on in whatever state is current, start is relative to the list's prefix.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

func encodeContinue(key, prefix string, c continueToken) string {
	c.APIVersion, c.StartKey = "meta.k8s.io/v1", strings.TrimPrefix(key, prefix)
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeContinue(token, prefix string) (key string, c continueToken, err error) {
	const invalid = "continue key is not valid"
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", c, fmt.Errorf(invalid+": %w", err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return "", c, fmt.Errorf(invalid+": %w", err)
	}
	start := "/" + strings.TrimPrefix(c.StartKey, "/")
	switch {
	case c.APIVersion != "meta.k8s.io/v1":
		return "", c, fmt.Errorf(invalid+": server does not recognize this encoded version %s", c.APIVersion)
	case c.ResourceVersion == 0:
		return "", c, errors.New(invalid + ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case c.StartKey == "":
		return "", c, errors.New(invalid + ": encoded start key empty (version meta.k8s.io/v1)")
	case path.Clean(start) != start:
		return "", c, fmt.Errorf(invalid+": %s", c.StartKey)
	}
	return prefix + start, c, nil
}

// WriteList answers with a page of the query.
func (r *Request) WriteList(p *Page, q Query) error {
	if p.Each != nil {
		return r.streamList(p, q)
	}
	items, err := r.items(p.Objects)
	if err != nil {
		return err
	}
	return r.writeItems(p, q, items)
}

// items encodes objects on all cores, each in two parts.
func (r *Request) items(objs []*Object) ([][]byte, error) {
	items := make([][]byte, 2*len(objs))
	workers := min(runtime.GOMAXPROCS(0), len(objs)/16+1)
	errs := make([]error, workers)
	var taken atomic.Int64
	work := func(w int) {
		defer func() {
			if p := recover(); p != nil {
				errs[w] = fmt.Errorf("encode %s: panic: %v", r.Resource, p)
			}
		}()
		for i := int(taken.Add(1) - 1); i < len(objs) && errs[w] == nil; i = int(taken.Add(1) - 1) {
			items[2*i], items[2*i+1], errs[w] = r.item(objs[i])
		}
	}
	var working sync.WaitGroup
	for w := range workers - 1 {
		working.Go(func() { work(w + 1) })
	}
	work(0)
	working.Wait()
	return items, errors.Join(errs...)
}

// item returns an object as an element of the answer, in two parts.
func (r *Request) item(o *Object) (head, tail []byte, err error) {
	if head, tail, err = r.Type.item(o, r.enc); err != nil {
		err = fmt.Errorf("encode %s %s/%s: %w", r.Resource, o.Namespace, o.Name, err)
	}
	return head, tail, err
}

// writeItems answers with a page that has these items, each in two parts.
func (r *Request) writeItems(p *Page, q Query, items [][]byte) error {
	parts := make([][]byte, 1, len(items)*3/2+2) // the first is the head, which needs the size of the rest
	size := 0
	add := func(b []byte) {
		parts = append(parts, b)
		size += len(b)
	}
	for i, b := range items {
		if i%2 == 0 {
			add(r.enc.before(i / 2))
		}
		add(b)
	}
	head, tail, err := r.frame(p, q, size)
	if err != nil {
		return err
	}
	parts[0] = head
	r.count(len(items) / 2)
	r.writeParts(append(parts, tail), len(head)+size+len(tail), r.enc.media())
	return nil
}

// frame returns the parts of a page before and after its items, which have that size.
func (r *Request) frame(p *Page, q Query, size int) (head, tail []byte, err error) {
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(p.Version, 10)}
	if p.Rest > 0 {
		meta.Continue = encodeContinue(p.Last+"\x00", q.Prefix(), continueToken{ResourceVersion: int64(p.Version)})
		if q.Everything() {
			meta.RemainingItemCount = &p.Rest
		}
	}
	gvk := r.Type.listKind(r.enc)
	if r.enc.proto {
		m, err := meta.Marshal()
		if err != nil {
			return nil, nil, err
		}
		m = appendBytes(nil, 1, m)
		return append(envelopeHead(gvk, len(m)+size), m...), envelopeTail, nil
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return nil, nil, err
	}
	head = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,`, gvk.Kind, gvk.GroupVersion().String(), m)
	if tab := r.enc.table; tab != nil {
		columns, err := tab.columns()
		if err != nil {
			return nil, nil, err
		}
		head = fmt.Appendf(head, `"columnDefinitions":%s,"rows":[`, columns)
	} else {
		head = append(head, `"items":[`...)
	}
	return head, []byte("]}\n"), nil
}

// count tells a ResponseWriter that counts the objects of answers.
func (r *Request) count(objects int) {
	if c, ok := r.w.(interface{ Items(int) }); ok {
		c.Items(objects)
	}
}

var gzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, 1)
	if err != nil {
		panic(err) // level 1 exists
	}
	return w
}}

// acceptsGzip says whether Accept-Encoding names gzip, in any case, and does not refuse
// it.
func acceptsGzip(h http.Header) bool {
	for _, line := range h.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				continue
			}
			_, q, weighted := strings.Cut(strings.ToLower(params), "q=")
			weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return !weighted || err == nil && weight > 0
		}
	}
	return false
}

func (r *Request) writeParts(parts [][]byte, size int, media string) {
	h := r.w.Header()
	h.Set("Content-Type", media)
	var w io.Writer = r.w
	if size > gzipThreshold && acceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		gz := gzipWriters.Get().(*gzip.Writer)
		gz.Reset(r.w)
		defer gzipWriters.Put(gz)
		defer func() { _ = gz.Close() }()
		w = gz
	} else {
		h.Set("Content-Length", strconv.Itoa(size))
	}
	r.w.WriteHeader(http.StatusOK)
	for _, b := range parts {
		if _, err := w.Write(b); err != nil {
			return // the client left
		}
	}
}
