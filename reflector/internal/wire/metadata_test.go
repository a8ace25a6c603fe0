package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReadMetadata: the memory of a list of metadata is known, so the next page can be
// smaller. In JSON it is read as a whole, into a buffer that grows.
func TestReadMetadata(t *testing.T) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: PartialKind + "List",
		APIVersion: "meta.k8s.io/v1"}}
	list.ResourceVersion = "7"
	for i := range 100 {
		list.Items = append(list.Items,
			metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), UID: "u",
				ResourceVersion: "1",
				Annotations:     map[string]string{"long": fmt.Sprintf("%01000d", i)}}})
	}
	body, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	resp := &http.Response{Header: http.Header{"Content-Type": {mediaJSON}}, Body: io.NopCloser(bytes.NewReader(body))}
	listed, about, held, err := ReadMetadata(resp)
	if err != nil || len(listed) != 100 || about.ResourceVersion != "7" {
		t.Fatal(len(listed), about, err)
	}
	if held < 2*int64(len(body)) {
		t.Errorf("%d bytes, of which %d count", len(body), held)
	}
}
