package reflector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// metadataFirst answers a page's request with a list of the objects that the file does
// not have, which it gets one by one. If an object has changed since it was listed, it is
// left to the watch, which begins at the list's version. Until then the file keeps its
// state of the object.
func (t *transport) metadataFirst(req *http.Request, p *rawPage) (*http.Response, error) {
	m := p.metadata
	resp, err := t.askMetadata(req, p, "")
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return resp, nil // the client understands it
	}
	defer resp.Body.Close()
	listed, about, held, err := wire.ReadMetadata(resp)
	if err != nil {
		return nil, p.failUnlessLink(err)
	}
	if len(listed) == 0 {
		return nil, p.fail(errInFull) // there is nothing to save
	}
	kept, wanted, err := p.divide(listed)
	if err != nil {
		return nil, err
	}
	if len(wanted) > min((len(listed)+4)/5, mostGets) {
		return nil, p.fail(fmt.Errorf("%w: %d of %d objects", errInFull, len(wanted), len(listed)))
	}
	got, err := t.getAll(req, p, wanted, m.kind == wire.Kind{} && len(wanted) == 0, listed[0])
	if err != nil {
		return nil, p.failUnlessLink(err)
	}
	objects, moved, still := sortOut(got)
	kept = append(kept, still...)
	kind := m.kind
	if kind == (wire.Kind{}) {
		if len(objects) == 0 {
			return nil, p.fail(errInFull) // all objects are gone
		}
		kind = objects[0].Kind
	}
	media, body, err := wire.List(kind, about, objects, p.of.Form == boltstore.FormUnstructured)
	if err != nil {
		return nil, p.failUnlessLink(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	p.kept, p.held = kept, max(held, wire.Decoded(len(body)))
	m.kind, m.objects, m.moved = kind, len(listed), moved
	return withBody(resp, req, media, body), nil
}

// askMetadata sends a page's request as one for metadata. as is the form, other than whole
// objects, that the client itself may ask for.
func (t *transport) askMetadata(req *http.Request, p *rawPage, as string) (*http.Response, error) {
	accept, asked := accepted(req.Header.Get("Accept"))
	if accept == "" || asked != "" && asked != as {
		return nil, p.fail(fmt.Errorf("%w: the client accepts %q", errNoMetadata, req.Header.Get("Accept")))
	}
	ask := req.Clone(req.Context())
	ask.Header.Set("Accept", accept)
	resp, err := t.send(ask)
	if err != nil {
		return nil, err
	}
	if err := notUnderstood(resp); err != nil {
		_ = resp.Body.Close()
		return nil, p.fail(err)
	}
	return resp, nil
}

// metadataOnly answers a page's request with an empty list, and notes the metadata.
func (t *transport) metadataOnly(req *http.Request, p *rawPage) (*http.Response, error) {
	resp, err := t.askMetadata(req, p, wire.PartialKind+"List")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, p.fail(fmt.Errorf("%w: list metadata: %s", errNoMetadata, resp.Status))
	}
	listed, about, _, err := wire.ReadMetadata(resp)
	if err != nil {
		return nil, p.failUnlessLink(err)
	}
	media, body, err := wire.List(wire.KindOf(resp, p.only.apiVersion, p.only.kind), about, nil, false)
	if err != nil {
		return nil, p.failUnlessLink(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	p.kept, p.only.version = listed, about.ResourceVersion
	return withBody(resp, req, media, body), nil
}

// withBody is the answer resp with another body, as an answer to req.
func withBody(resp *http.Response, req *http.Request, media string, body []byte) *http.Response {
	header := resp.Header.Clone()
	header.Del("Content-Length")
	header.Set("Content-Type", media)
	return &http.Response{
		Status: resp.Status, StatusCode: resp.StatusCode, Proto: resp.Proto, ProtoMajor: resp.ProtoMajor,
		ProtoMinor: resp.ProtoMinor,
		Header:     header, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}
}

// accepted is the Accept header for a list of metadata in the encoding of accept's first
// choice, "" if that is not known. as is the form that this choice asks for, "" for whole
// objects.
func accepted(accept string) (metadata, as string) {
	media, params, err := mime.ParseMediaType(strings.Split(accept, ",")[0])
	if err != nil || !wire.Known(media) {
		return "", ""
	}
	return media + ";as=" + wire.PartialKind + "List;g=meta.k8s.io;v=v1", params["as"]
}

// notUnderstood returns an error if the server may be unable to answer requests for
// metadata. The page is then asked for in full.
func notUnderstood(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusNotAcceptable, http.StatusUnsupportedMediaType, http.StatusBadRequest,
		http.StatusUnprocessableEntity,
		http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return fmt.Errorf("%w: %s", errNoMetadata, resp.Status)
	case http.StatusInternalServerError:
		return fmt.Errorf("%w: %s", errInFull, resp.Status)
	}
	return nil
}

// failUnlessLink notes the error, unless the link caused it. Metadata cannot be had then.
func (p *rawPage) failUnlessLink(err error) error {
	if errors.Is(err, wire.ErrForm) {
		err = fmt.Errorf("%w: %w", errNoMetadata, err)
	}
	if errors.Is(err, errNoMetadata) || errors.Is(err, errInFull) {
		return p.fail(err)
	}
	return err
}

// change is an object that the file does not have, or has in another version.
type change struct {
	listed listing.Object
	known  bool // the file has another version of it
	object wire.Object
	moved  bool // it has changed since it was listed
}

// sortOut separates the objects that were got from those that have changed since they were
// listed. kept are those of them that the file has: it keeps its state until the watch
// brings the change. moved says whether there are any.
func sortOut(got []*change) (objects []wire.Object, moved bool, kept []listing.Object) {
	for _, g := range got {
		if !g.moved {
			objects = append(objects, g.object)
			continue
		}
		moved = true
		if g.known {
			kept = append(kept, g.listed)
		}
	}
	return objects, moved, kept
}

// divide separates the objects that the file has from those to be asked for.
func (p *rawPage) divide(listed []listing.Object) (kept []listing.Object, wanted []*change, err error) {
	found, err := p.same(listed)
	if err != nil {
		return nil, nil, err
	}
	for i, l := range listed {
		if found[i] == listing.MatchSame {
			kept = append(kept, l)
		} else {
			wanted = append(wanted, &change{listed: l, known: found[i] == listing.MatchDiffers})
		}
	}
	return kept, wanted, nil
}

// getAll gets the wanted objects. If none is wanted and the kind is unknown, it gets one
// object that the file has, to learn the kind.
func (t *transport) getAll(req *http.Request, p *rawPage, wanted []*change, unknown bool, any listing.Object) (
	[]*change, error,
) {
	if unknown {
		c := &change{listed: any}
		if err := t.get(req.Context(), req, c); err != nil {
			return nil, err
		}
		if c.moved {
			return nil, errInFull
		}
		p.metadata.kind = c.object.Kind
		return nil, nil
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	turn := make(chan struct{}, parallelGets)
	var gets sync.WaitGroup
	for _, c := range wanted {
		turn <- struct{}{}
		gets.Go(func() {
			defer func() { <-turn }()
			if ctx.Err() != nil {
				return
			}
			if err := t.get(ctx, req, c); err != nil {
				cancel(err)
			}
		})
	}
	gets.Wait()
	return wanted, context.Cause(ctx)
}

func cutLast(path string) (dir, last string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// get fills in the object, in the encoding that the list's client asks for.
func (t *transport) get(ctx context.Context, list *http.Request, c *change) error {
	get := list.Clone(apart{ctx})
	dir, resource, _ := cutLast(strings.TrimSuffix(list.URL.Path, "/"))
	if c.listed.Namespace != "" && !strings.HasSuffix(dir, "/namespaces/"+c.listed.Namespace) {
		dir += "/namespaces/" + c.listed.Namespace
	}
	get.URL.Path, get.URL.RawPath, get.URL.RawQuery = dir+"/"+resource+"/"+c.listed.Name, "", ""
	resp, err := t.send(get)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound && bytes.Contains(body, []byte(metav1.StatusReasonNotFound)) &&
		bytes.Contains(body, []byte(c.listed.Name)):
		c.moved = true // the server itself says so
		return nil
	case code == http.StatusTooManyRequests || code >= 500:
		return fmt.Errorf("%w: %s: %s", errInFull, get.URL.Path, resp.Status)
	case code != http.StatusOK:
		return fmt.Errorf("%w: %s: %s", errNoMetadata, get.URL.Path, resp.Status)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	id, o, err := wire.ReadObject(media, body)
	if err != nil {
		return err
	}
	if c.object = o; id == c.listed {
		return nil
	}
	later, err := resourceversion.CompareResourceVersion(id.ResourceVersion, c.listed.ResourceVersion)
	if err != nil || later <= 0 || id.Namespace != c.listed.Namespace || id.Name != c.listed.Name {
		return fmt.Errorf("%w: %+v is listed, %+v got", errNoMetadata, c.listed, id)
	}
	c.moved = true
	return nil
}

// apart is the context of a request for one object of a page. It hides the page,
// since the answer is no page, and the origin, since under HTTP/1 the connection
// is another one.
type apart struct{ context.Context }

func (a apart) Value(key any) any {
	if key == (pulseKey{}) {
		return a.Context.Value(key)
	}
	return nil
}
