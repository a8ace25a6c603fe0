// Package seal encrypts and decrypts the contents of a file.
//
// Values are sealed, as by kube-apiserver's encryption at rest. Object keys and index
// values are not: docs/design/file.md says what an encrypted file shows.
//
// A file has a data key of its own, which seals with XAES-256-GCM. Its 192-bit nonces can
// be drawn at random without limit. With the nonces of AES-GCM, a busy file would reach
// the limit within days.
//
// The data key is in the file, in an [Envelope] sealed by the user's [Keyset].
// [Generate] makes a keyset, and boltstore.Options.Keyset names it, for example by [File].
// [Rotate] adds a key. The next Open for writing then gives the file a new data key.
//
// Sealing binds bytes to their place: they cannot be decrypted elsewhere.
package seal

import (
	"bytes"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// Sealer seals with a file's data key. A nil Sealer leaves everything as it is. A
// Sealer is safe for concurrent use.
type Sealer struct {
	aead   tink.AEAD
	handle *keyset.Handle
}

// Envelope is a file's data key, sealed by the key of that id in the user's keyset.
type Envelope struct {
	KeyID   uint32 `msgpack:"keyID"`
	DataKey []byte `msgpack:"dataKey"`
}

var dataKeyPlace = []byte("kubewake 1 data key")

// NewSealer makes a new data key.
func NewSealer() (*Sealer, error) {
	// There is only one key, so ciphertexts need no prefix that names it.
	h, err := keyset.NewHandle(aead.XAES256GCM192BitNonceNoPrefixKeyTemplate())
	if err != nil {
		return nil, err
	}
	return newSealer(h)
}

func newSealer(h *keyset.Handle) (*Sealer, error) {
	a, err := aead.New(h)
	return &Sealer{a, h}, err
}

// Wrap seals the data key of s with the keyset's primary key.
func (m *Master) Wrap(s *Sealer) (*Envelope, error) {
	var key bytes.Buffer
	if err := s.handle.WriteWithAssociatedData(keyset.NewBinaryWriter(&key), m.aead, dataKeyPlace); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKeyset, m.name, err)
	}
	return &Envelope{KeyID: m.primary, DataKey: key.Bytes()}, nil
}

// Unwrap opens an envelope.
func (m *Master) Unwrap(e *Envelope) (*Sealer, error) {
	h, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(e.DataKey)), m.aead, dataKeyPlace)
	if err != nil {
		return nil, m.wrong(e)
	}
	return newSealer(h)
}

func (m *Master) wrong(e *Envelope) error {
	return fmt.Errorf("%w: the file is encrypted and %s does not open it; give the keyset that has the key %d",
		ErrKeyset, m.name, e.KeyID)
}

// Current says whether the envelope was sealed by the keyset's primary key.
func (m *Master) Current(e *Envelope) bool { return e.KeyID == m.primary }

// Value seals a value.
func (s *Sealer) Value(value, place []byte) ([]byte, error) {
	if s == nil {
		return value, nil
	}
	return s.aead.Encrypt(value, place)
}

// OpenValue opens a value that Value has sealed.
func (s *Sealer) OpenValue(sealed, place []byte) ([]byte, error) {
	if s == nil {
		return sealed, nil
	}
	return s.aead.Decrypt(sealed, place)
}
