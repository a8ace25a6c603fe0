package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/kubewake/kubewake/internal/listing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// jsonList is a list in JSON. It is read as a whole before its items are found. Nothing
// else in it is parsed.
type jsonList struct {
	from  io.Reader
	all   []byte
	at    int    // in all: the next item, or the end of the array
	first int    // where the items begin
	added []byte // items of the other list
}

func (l *jsonList) next() (id listing.Object, item []byte, err error) {
	if l.all == nil {
		if err := l.begin(); err != nil {
			return id, nil, err
		}
	}
	if l.first == 0 {
		return id, nil, io.EOF // no items
	}
	l.at = skipSpace(l.all, l.at)
	if l.at < len(l.all) && l.all[l.at] == ',' && l.at > l.first {
		l.at = skipSpace(l.all, l.at+1)
	}
	if l.at < len(l.all) && l.all[l.at] == ']' {
		return id, nil, io.EOF
	}
	end := skipValue(l.all, l.at)
	if end < 0 || l.all[l.at] != '{' {
		return id, nil, fmt.Errorf("%w: an item is no object", ErrForm)
	}
	item = l.all[l.at:end]
	l.at = end
	id, err = jsonListed(item)
	return id, item, err
}

// begin reads the whole list and finds the items.
func (l *jsonList) begin() (err error) {
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(l.from); err != nil {
		return err
	}
	l.all = append(buf.Bytes(), '\n') // not nil, and each value has a byte behind it
	return jsonMembers(l.all, skipSpace(l.all, 0), func(key string, from, _ int) error {
		if key != "items" || l.all[from] == 'n' { // null
			return nil
		}
		if l.first > 0 || l.all[from] != '[' {
			return fmt.Errorf("%w: its items are no array", ErrForm)
		}
		l.first = from + 1
		l.at = l.first
		return nil
	})
}

// jsonListed reads the fields of an object's metadata that identify it.
func jsonListed(item []byte) (l listing.Object, err error) {
	err = jsonMembers(item, 0, func(key string, from, _ int) error {
		if key != "metadata" || item[from] != '{' {
			return nil
		}
		return jsonMembers(item, from, func(key string, from, to int) error {
			switch key {
			case "name":
				return json.Unmarshal(item[from:to], &l.Name)
			case "namespace":
				return json.Unmarshal(item[from:to], &l.Namespace)
			case "uid":
				return json.Unmarshal(item[from:to], &l.UID)
			case "resourceVersion":
				return json.Unmarshal(item[from:to], &l.ResourceVersion)
			}
			return nil
		})
	})
	if err != nil {
		err = fmt.Errorf("%w: an item: %v", ErrForm, err)
	}
	return l, err
}

func (l *jsonList) add(item []byte) {
	if len(l.added) > 0 {
		l.added = append(l.added, ',')
	}
	l.added = append(l.added, item...)
}

func (l *jsonList) other() []byte {
	if l.first == 0 {
		return l.all
	}
	b := make([]byte, 0, l.first+len(l.added)+len(l.all)-l.at)
	b = append(b, l.all[:l.first]...)
	b = append(b, l.added...)
	return append(b, l.all[l.at:]...)
}

// held also counts the memory that the buffer takes while it grows.
func (l *jsonList) held() int64 { return 2 * int64(len(l.all)) }

// jsonMembers calls fn with each member of the object at b[i]: its key, and where
// its value begins and ends. Escapes in keys stay as they are.
func jsonMembers(b []byte, i int, fn func(key string, from, to int) error) error {
	cut := fmt.Errorf("%w: no JSON object", ErrForm)
	if i >= len(b) || b[i] != '{' {
		return cut
	}
	for i = skipSpace(b, i+1); ; i = skipSpace(b, i+1) {
		if i < len(b) && b[i] == '}' {
			return nil
		}
		if i >= len(b) || b[i] != '"' {
			return cut
		}
		end := skipValue(b, i)
		if end < 0 {
			return cut
		}
		key := string(b[i+1 : end-1])
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return cut
		}
		i = skipSpace(b, i+1)
		if end = skipValue(b, i); end < 0 {
			return cut
		}
		if err := fn(key, i, end); err != nil {
			return err
		}
		if i = skipSpace(b, end); i < len(b) && b[i] == '}' {
			return nil
		}
		if i >= len(b) || b[i] != ',' {
			return cut
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value at b[i] ends, -1 if it does not.
func skipValue(b []byte, i int) int {
	begin := i
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 { // the end of the array or object around a number or word
				return nonEmpty(begin, i)
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return nonEmpty(begin, i)
			}
		}
	}
	return -1
}

func nonEmpty(from, to int) int {
	if from == to {
		return -1
	}
	return to
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// head returns the kind and the metadata of the list that has been read.
func (l *jsonList) head() (kind string, about metav1.ListMeta, err error) {
	err = jsonMembers(l.all, skipSpace(l.all, 0), func(key string, from, to int) error {
		switch key {
		case "kind":
			return json.Unmarshal(l.all[from:to], &kind)
		case "metadata":
			return json.Unmarshal(l.all[from:to], &about)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %v", ErrForm, err)
	}
	return kind, about, err
}

// withoutType is an object without kind and apiVersion.
func withoutType(item []byte) ([]byte, error) {
	out := make([]byte, 1, len(item))
	out[0] = '{'
	err := jsonMembers(item, 0, func(key string, from, to int) error {
		if key == "kind" || key == "apiVersion" {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), key...), `":`...)
		out = append(out, item[from:to]...)
		return nil
	})
	return append(out, '}'), err
}
