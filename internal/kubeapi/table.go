package kubeapi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1beta1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
)

var tableKind = metav1.SchemeGroupVersion.WithKind("Table")

// table is the form in which an answer prints its objects.
type table struct {
	kind    *printcolumns.Kind
	include metav1.IncludeObjectPolicy
	now     func() time.Time
	known   bool // the client has the columns from an earlier event of the watch
}

// table returns the form of the table that the request asks for.
func (r *Request) table() (*table, error) {
	var o metav1.TableOptions
	if err := internalscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateTableOptions(&o); len(errs) > 0 {
		return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs[0].Error())
	}
	if o.IncludeObject == metav1.IncludeObject && r.Type.MetadataOnly {
		return nil, r.Type.errMetadataOnly()
	}
	return &table{kind: printcolumns.For(r.Type.GroupVersionKind, r.Type.Columns, r.Type.MetadataOnly),
		include: o.IncludeObject, now: r.h.Clock.Now}, nil
}

// still is a form that makes the same bytes of an object however often it is asked. In a table the
// first event of a watch has the columns, and ages grow.
func (enc encoding) still() encoding {
	if enc.table != nil {
		t, now := *enc.table, enc.table.now()
		t.now = func() time.Time { return now }
		enc.table = &t
	}
	return enc
}

func (f *table) columns() ([]byte, error) {
	if f.known {
		return []byte("null"), nil
	}
	return json.Marshal(f.kind.Columns())
}

// row returns an object as a row of a table.
func (t *Type) row(o *Object, enc encoding, initialEventsEnd bool) ([]byte, error) {
	f := enc.table
	obj, err := t.value(o)
	if err != nil {
		return nil, err
	}
	row, err := f.kind.Row(obj, f.now())
	if err != nil {
		return nil, err
	}
	object := []byte("null")
	switch {
	case f.include == metav1.IncludeObject:
		object, err = t.JSON(o)
	case f.include == metav1.IncludeNone && !initialEventsEnd: // clients look for the annotation
	default:
		object, err = t.metaJSONOf(o)
	}
	if err != nil {
		return nil, err
	}
	cells, err := json.Marshal(row.Cells)
	if err != nil {
		return nil, err
	}
	// The object is already JSON. Marshalling the row as a whole would read it once more.
	b := fmt.Appendf(make([]byte, 0, len(object)+len(cells)+200), `{"cells":%s`, cells)
	if len(row.Conditions) > 0 {
		conditions, err := json.Marshal(row.Conditions)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, `,"conditions":%s`, conditions)
	}
	b = append(append(b, `,"object":`...), object...)
	return append(b, '}'), nil
}

// tableOf returns an object as a table with one row.
func (t *Type) tableOf(o *Object, enc encoding, initialEventsEnd bool) ([]byte, error) {
	row, err := t.row(o, enc, initialEventsEnd)
	if err != nil {
		return nil, err
	}
	columns, err := enc.table.columns()
	if err != nil {
		return nil, err
	}
	const form = `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q},"columnDefinitions":%s,"rows":[%s]}`
	return fmt.Appendf(nil, form,
		tableKind.Kind, tableKind.GroupVersion().String(), strconv.FormatUint(o.Version, 10), columns, row), nil
}

// value is the object as a Go type, or unstructured.
func (t *Type) value(o *Object) (runtime.Object, error) {
	if o.from != nil {
		return o.from, nil
	}
	obj := t.NewObject()
	return obj, t.Decode(o, obj)
}
