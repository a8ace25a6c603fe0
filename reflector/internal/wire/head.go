package wire

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Continue returns the continue token that a list of a known media type states, "" for
// none. head is the list's beginning. Continue returns false if head ends too early, or
// the list has its items before its metadata.
func Continue(media string, head []byte) (token string, ok bool) {
	var about metav1.ListMeta
	if media == mediaProto {
		ok = protoMeta(head, &about)
	} else {
		ok = jsonMeta(head, &about)
	}
	return about.Continue, ok
}

// protoMeta reads the metadata of a list that begins as a protoList does.
func protoMeta(head []byte, about *metav1.ListMeta) bool {
	rest, ok := bytes.CutPrefix(head, []byte(protoMagic))
	if !ok {
		return false
	}
	num, _, n := protowire.ConsumeField(rest)
	if n < 0 || num != 1 {
		return false
	}
	rest = rest[n:]
	if rest, ok = bytesField(rest, 2); !ok {
		return false
	}
	if _, n = protowire.ConsumeVarint(rest); n < 0 {
		return false
	}
	if rest, ok = bytesField(rest[n:], 1); !ok {
		return false
	}
	meta, n := protowire.ConsumeBytes(rest)
	return n >= 0 && about.Unmarshal(meta) == nil
}

// bytesField returns what follows the tag of a field of bytes with that number.
func bytesField(b []byte, is protowire.Number) (rest []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != is || typ != protowire.BytesType {
		return nil, false
	}
	return b[n:], true
}

// jsonMeta reads the metadata of a list in JSON.
func jsonMeta(head []byte, about *metav1.ListMeta) bool {
	d := json.NewDecoder(bytes.NewReader(head))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	for {
		var other json.RawMessage
		switch key, err := d.Token(); {
		case err != nil || key == "items":
			return false
		case key == "metadata":
			return d.Decode(about) == nil
		case d.Decode(&other) != nil:
			return false
		}
	}
}
