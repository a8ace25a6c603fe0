package boltstore

import (
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/index"
)

// Message is an object as a protobuf message of its kind, as an API server sends it. What
// says its kind is not part of it.
type Message struct {
	Key, Version string
	Raw          []byte
}

// HasMessages says whether the source's objects are stored as protobuf messages.
func (s *Store) HasMessages() bool { return s.codec.ID() == codec.IDProtobuf }

// MessagesAt is PageAt for a source that HasMessages. It decodes nothing.
func (s *Store) MessagesAt(at Moment, prefix, from string, n int) (msgs []Message, more bool, err error) {
	raws, more, err := s.rawsAt(at, prefix, from, n)
	if err != nil {
		return nil, false, err
	}
	msgs = make([]Message, len(raws))
	err = s.reading().decodeEach(raws, func(i int, key string, r *format.Record) error {
		raw, err := s.reading().message(r)
		if err != nil {
			return fmt.Errorf("record of %q: %w", key, err)
		}
		msgs[i] = Message{key, r.ResourceVersion, raw}
		return nil
	})
	return msgs, more, s.explained(err)
}

// message returns a verified record's message.
func (s reading) message(r *format.Record) ([]byte, error) {
	if r.Codec != s.codec.ID() || r.Codec != codec.IDProtobuf {
		return nil, fmt.Errorf("%w: codec %d, not %d", ErrDamaged, r.Codec, codec.IDProtobuf)
	}
	payload, err := s.packing().plain(r, nil)
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
func (e *Entry) Message() (m Message, ok bool, err error) {
	if e.Type == cache.Deleted || e.next == nil || !e.s.HasMessages() || e.Outdated() {
		return m, false, nil
	}
	_, r, err := e.s.owner.ParseRecord(index.AppendKey(nil, e.Key), e.next)
	if err != nil {
		return m, false, err
	}
	m = Message{Key: e.Key, Version: r.ResourceVersion}
	m.Raw, err = e.s.reading().message(r)
	return m, err == nil, err
}

// IsNew says whether there was no object before the change.
func (e *Entry) IsNew() bool { return e.prev == nil && e.prevObj == nil }
