package boltstore

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/index"
)

// HasMessages says whether the source's objects are stored as protobuf messages of their
// kind, as an API server sends them in an envelope that says the kind.
func (s *source) HasMessages() bool { return s.coder.codec.ID() == codec.IDProtobuf }

// MessagesAt is PageAt for a source that HasMessages. It decodes nothing: it returns each
// object's key, version and message.
func (s *Store) MessagesAt(at Moment, prefix string, from []byte, n int) (
	keys, versions []string, msgs [][]byte, next []byte, err error,
) {
	raws, next, err := s.reader.rawsAt(at, prefix, from, n)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	keys, versions, msgs = make([]string, len(raws)), make([]string, len(raws)), make([][]byte, len(raws))
	err = s.reader.decodeEach(raws, func(i int, key string, r *format.Record) error {
		msg, err := s.reader.message(r)
		if err != nil {
			return fmt.Errorf("record of %q: %w", key, err)
		}
		keys[i], versions[i], msgs[i] = key, r.ResourceVersion, msg
		return nil
	})
	return keys, versions, msgs, next, s.health.explained(err)
}

// message returns a verified record's message.
func (rd *reader) message(r *format.Record) ([]byte, error) {
	if err := rd.s.coder.sameCodec(r); err != nil {
		return nil, err
	}
	if !rd.s.HasMessages() {
		return nil, fmt.Errorf("codec %d stores no messages", r.Codec)
	}
	payload, err := plain(r, nil)
	if err != nil {
		return nil, err
	}
	msg, err := codec.Message(payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	return msg, nil
}

// Message returns the message of the object after the change. ok is false for a delete, and
// for an entry whose object is not as it is stored.
func (e *Entry) Message() (msg []byte, ok bool, err error) {
	if e.Type == cache.Deleted || e.next == nil || !e.s.HasMessages() || e.Outdated() {
		return nil, false, nil
	}
	_, r, err := e.s.coder.owner.ParseRecord(index.AppendKey(nil, e.Key), e.next)
	if err != nil {
		return nil, false, err
	}
	msg, err = e.s.reader.message(r)
	return msg, err == nil, err
}

// IsNew says whether there was no object before the change.
func (e *Entry) IsNew() bool { return e.prev == nil && e.prevObj == nil }
