package kubesim

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

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
	messageExpired      = "The resourceVersion for the provided list is too old."
	messageInconsistent = "The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

// query is the parsed form of a list's or watch's parameters.
type query struct {
	internalversion.ListOptions
	selection
}

func (r *request) parseList() (*query, error) {
	q := &query{}
	if err := internalscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &q.ListOptions); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(&q.ListOptions, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	q.labels, q.fields = labels.Everything(), fields.Everything()
	if q.LabelSelector != nil {
		q.labels = q.LabelSelector
	}
	if q.FieldSelector != nil {
		q.fields = q.FieldSelector
	}
	if err := r.t.checkFields(q.fields); err != nil {
		return nil, err
	}
	if r.namespace != "" {
		q.prefix = "/" + r.namespace
	}
	return q, nil
}

func (t *table) checkFields(sel fields.Selector) error {
	if sel.Empty() {
		return nil
	}
	known := selectable(t.kind.newObject())
	for _, req := range sel.Requirements() {
		if known.Has(req.Field) {
			continue
		}
		if len(known) == 2 && !t.kind.custom {
			return apierrors.NewBadRequest(fmt.Sprintf(
				`%q is not a known field selector: only "metadata.name", "metadata.namespace"`, req.Field))
		}
		return apierrors.NewBadRequest("field label not supported: " + req.Field)
	}
	return nil
}

// page is the answer to a list.
type page struct {
	rv        uint64
	versions  []*version
	cont      string
	remaining *int64
}

func (r *request) list() error {
	q, err := r.parseList()
	if err != nil {
		return err
	}
	p, err := r.read(q)
	if err != nil {
		return err
	}
	return r.writePage(p)
}

// read resolves which state the list is of and collects it.
func (r *request) read(q *query) (*page, error) {
	from, at := "", uint64(0) // at 0: the present state
	paging := q.Continue != ""
	limit := q.Limit
	switch {
	case paging:
		if q.ResourceVersion != "" && q.ResourceVersion != "0" {
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		key, rv, err := decodeContinue(q.Continue, q.prefix)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
		}
		from = key
		if rv > 0 {
			at = uint64(rv)
		}
	case q.ResourceVersion == "0":
		limit = 0 // served from the watch cache, which does not page such lists
	}
	if most := r.s.opts.LargestPage; most > 0 {
		limit = min(limit, most) // 0 stays 0
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	rev := r.s.rev
	if rv := q.ResourceVersion; !paging && rv != "" && rv != "0" {
		n, err := strconv.ParseUint(rv, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(badRevision(rv, err))
		}
		if n > rev {
			return nil, errTooLarge(n, rev)
		}
		exact := q.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
			q.ResourceVersionMatch == "" && limit > 0 // what the API was before resourceVersionMatch
		if exact {
			at = n
		}
	}
	switch {
	case at == 0:
		at = rev
	case at > rev:
		return nil, errTooLarge(at, rev)
	case at < max(r.s.compacted, r.s.listable):
		return nil, errListExpired(paging, from, q.prefix)
	}
	return r.t.collect(q, from, at, limit), nil
}

// collect gathers up to limit objects (0 is all) and what a next page needs. It
// needs Server.mu.
func (t *table) collect(q *query, from string, at uint64, limit int64) *page {
	p := &page{rv: at}
	var last string
	var rest int64
	full := false
	t.scan(q.prefix, from, at, func(key string, v *version) bool {
		if full {
			rest++
			return true
		}
		if q.matches(v) {
			p.versions = append(p.versions, v)
			last = key
			full = limit > 0 && int64(len(p.versions)) == limit
		}
		return true
	})
	if rest > 0 {
		p.cont = encodeContinue(last+"\x00", q.prefix, int64(at))
		if q.labels.Empty() && q.fields.Empty() {
			p.remaining = &rest
		}
	}
	return p
}

func errListExpired(paging bool, from, prefix string) error {
	if !paging {
		return apierrors.NewResourceExpired(messageExpired)
	}
	err := apierrors.NewResourceExpired(messageInconsistent)
	err.ErrStatus.Continue = encodeContinue(from, prefix, -1)
	return err
}

// continueToken has the form of the real server's: rv is -1 for a list that may
// go on in whatever state is current, start is relative to the list's prefix.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

func encodeContinue(key, prefix string, rv int64) string {
	b, err := json.Marshal(continueToken{"meta.k8s.io/v1", rv, strings.TrimPrefix(key, prefix)})
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeContinue(token, prefix string) (key string, rv int64, err error) {
	const invalid = "continue key is not valid"
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", 0, fmt.Errorf(invalid+": %w", err)
	}
	var c continueToken
	if err := json.Unmarshal(data, &c); err != nil {
		return "", 0, fmt.Errorf(invalid+": %w", err)
	}
	start := "/" + strings.TrimPrefix(c.StartKey, "/")
	switch {
	case c.APIVersion != "meta.k8s.io/v1":
		return "", 0, fmt.Errorf(invalid+": server does not recognize this encoded version %s", c.APIVersion)
	case c.ResourceVersion == 0:
		return "", 0, errors.New(invalid + ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case c.StartKey == "":
		return "", 0, errors.New(invalid + ": encoded start key empty (version meta.k8s.io/v1)")
	case path.Clean(start) != start:
		return "", 0, fmt.Errorf(invalid+": %s", c.StartKey)
	}
	return prefix + start, c.ResourceVersion, nil
}

// writePage answers with a list, from the encodings that its objects hold.
func (r *request) writePage(p *page) error {
	k := r.t.kind
	parts := make([][]byte, 0, 2*len(p.versions)+2)
	size := 0
	add := func(b []byte) {
		parts = append(parts, b)
		size += len(b)
	}
	add(nil) // the head, which needs the size of the rest
	for i, v := range p.versions {
		head, tail, err := k.item(v, r.enc)
		if err != nil {
			return fmt.Errorf("encode %s %s/%s: %w", r.resource, v.namespace, v.name, err)
		}
		if i > 0 && !r.enc.proto {
			add([]byte(","))
		}
		add(head)
		add(tail)
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(p.rv, 10), Continue: p.cont, RemainingItemCount: p.remaining}
	gvk := k.listKind(r.enc.partial)
	media := mediaJSON
	if r.enc.proto {
		media = mediaProto
		m, err := meta.Marshal()
		if err != nil {
			return err
		}
		m = appendBytes(nil, 1, m)
		parts[0] = append(envelopeHead(gvk, len(m)+size), m...)
		parts = append(parts, envelopeTail)
	} else {
		m, err := json.Marshal(meta)
		if err != nil {
			return err
		}
		parts[0] = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, gvk.Kind, gvk.GroupVersion().String(), m)
		parts = append(parts, []byte("]}\n"))
	}
	size += len(parts[0]) + len(parts[len(parts)-1])
	r.w.items(len(p.versions))
	r.writeParts(parts, size, media)
	return nil
}

var gzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, 1)
	if err != nil {
		panic(err) // level 1 exists
	}
	return w
}}

func (r *request) writeParts(parts [][]byte, size int, media string) {
	h := r.w.Header()
	h.Set("Content-Type", media)
	var w io.Writer = r.w
	if size > gzipThreshold && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
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
