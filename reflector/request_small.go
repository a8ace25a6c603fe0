package reflector

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/kubewake/kubewake/internal/packed"
)

// mostSmall is how many bytes a small answer has. A gateway that answers in the server's
// place sends fewer, and a client of Go types decodes any JSON object as a list.
const mostSmall = 1 << 10

// checkSmall has the reader of a small answer to a list's request get errNoList if the
// answer is no list.
func checkSmall(req *http.Request, resp *http.Response) {
	p, _ := req.Context().Value(pulseKey{}).(*pulse)
	if p == nil || req.Method != http.MethodGet || resp.StatusCode != http.StatusOK || len(packed.By(resp.Header)) > 0 {
		return
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil ||
		media != "application/json" {
		return
	}
	if _, err := sourceOf(req.URL); err != nil {
		return
	}
	if watch := req.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		return
	}
	resp.Body = &small{ReadCloser: resp.Body}
}

// small is the body of such an answer.
type small struct {
	io.ReadCloser
	text []byte // as read so far, if it is small
}

func (s *small) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if len(s.text) <= mostSmall {
		s.text = append(s.text, p[:n]...)
	}
	if errors.Is(err, io.EOF) && len(s.text) <= mostSmall && !isSmallList(s.text) {
		err = errNoList
	}
	return n, err
}

// isSmallList says whether the JSON is a list, such as any server may write.
func isSmallList(text []byte) bool {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return false
	}
	kind := ""
	if of, ok := members["kind"]; ok && json.Unmarshal(of, &kind) != nil {
		return false
	}
	_, items := members["items"]
	return kind != "Status" && (items || strings.HasSuffix(kind, "List"))
}
