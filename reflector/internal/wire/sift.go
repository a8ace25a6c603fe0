package wire

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/packed"
)

// ErrForm means that an answer does not have the form of the API's lists or objects.
// Errors of the link are not ErrForm.
var ErrForm = errors.New("reflector: not the form of a list")

// Compare says for each listed object whether the caller has it.
type Compare func([]listing.Object) ([]listing.Match, error)

// Sifted is the result of sifting an answer.
type Sifted struct {
	// Rest is a list of the objects that the caller does not have.
	Rest []byte
	// Kept are the objects that Rest leaves out.
	Kept []listing.Object
	// Held is the most memory that the answer, or the decoded Rest, takes at any time.
	Held int64
}

const (
	// batchSize is how many bytes of a list are compared at once.
	batchSize = 512 << 10
	// decodedSize is the factor by which an object grows from an answer to memory, where
	// it is decoded and ready to be stored.
	decodedSize = 4
)

// Decoded estimates how much memory a list of this many bytes takes when it is decoded.
func Decoded(size int) int64 { return decodedSize * int64(size) }

// Filter has the body of a list's answer sifted when it is first read. It calls done
// once, when the whole answer has been sifted or sifting has failed; the reader of the
// body gets the same error. Filter leaves any answer alone that is not a list in an
// encoding that it knows.
func Filter(resp *http.Response, same Compare, done func(Sifted, error)) {
	if resp.StatusCode != http.StatusOK || len(packed.By(resp.Header)) > 0 {
		return
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || !Known(media) {
		return
	}
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Body = &filtered{from: resp.Body, sift: func(from io.Reader) (Sifted, error) {
		s, err := Sift(media, from, same)
		done(s, err)
		return s, err
	}}
}

// filtered is an answer whose reader gets only the rest.
type filtered struct {
	from io.ReadCloser
	sift func(io.Reader) (Sifted, error)
	rest *bytes.Reader // nil: nothing has been read yet
	err  error         // why there is no rest
}

func (f *filtered) Close() error { return f.from.Close() }

func (f *filtered) Read(buf []byte) (int, error) {
	if f.rest == nil && f.err == nil {
		var s Sifted
		s, f.err = f.sift(f.from)
		f.rest = bytes.NewReader(s.Rest)
	}
	if f.err != nil {
		return 0, f.err
	}
	return f.rest.Read(buf)
}

const (
	mediaProto = "application/vnd.kubernetes.protobuf"
	mediaJSON  = "application/json"
)

// Known says whether lists of this media type can be read.
func Known(media string) bool { return media == mediaProto || media == mediaJSON }

// list reads the items of a list, and makes another list of some of them.
type list interface {
	// next returns an item, valid until the next call, or io.EOF at the end. An
	// error that is not ErrForm is that of the reader.
	next() (listing.Object, []byte, error)
	// add puts an item into the other list, or several items one after the
	// other as next has returned them.
	add(item []byte)
	// other is the other list. It has everything of the first but its items.
	other() []byte
	// head returns, after the last item, the list's kind and its metadata.
	head() (kind string, about metav1.ListMeta, err error)
	// held is how many bytes of the first list count as memory.
	held() int64
}

func newList(media string, from io.Reader) list {
	if media == mediaProto {
		return newProtoList(from)
	}
	return &jsonList{from: from}
}

// Sift reads a list of a known media type and leaves out the objects that, by same, the
// caller has.
func Sift(media string, from io.Reader, same Compare) (Sifted, error) {
	l := newList(media, from)
	kept, err := sift(l, same)
	if err != nil {
		return Sifted{}, err
	}
	rest := l.other()
	return Sifted{rest, kept, max(Decoded(len(rest)), l.held())}, nil
}

// sift adds the objects that the caller does not have to the other list, and returns
// those that it has.
func sift(l list, same Compare) (kept []listing.Object, err error) {
	var (
		batch []listing.Object
		items []byte
		ends  []int
	)
	flush := func() error {
		found, err := same(batch)
		if err != nil {
			return err
		}
		from := 0
		for i, l1 := range batch {
			if found[i] == listing.MatchSame {
				kept = append(kept, l1)
			} else {
				l.add(items[from:ends[i]])
			}
			from = ends[i]
		}
		batch, items, ends = batch[:0], items[:0], ends[:0]
		return nil
	}
	for {
		id, item, err := l.next()
		if err == io.EOF {
			return kept, flush()
		}
		if err != nil {
			return nil, err
		}
		batch, items = append(batch, id), append(items, item...)
		ends = append(ends, len(items))
		if len(items) >= batchSize {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
}
