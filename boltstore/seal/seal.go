// Package seal encrypts and decrypts the contents of a file.
//
// A file has two data keys of its own. One is for names (object keys and index values),
// which are sealed deterministically with AES-SIV: equal names are equal in the file and
// can be looked up. The other is for values (everything else), which are sealed with
// XAES-256-GCM. Its 192-bit nonces can be drawn at random without limit. With the nonces
// of AES-GCM, a busy file would reach the limit within days.
//
// The data keys are in the file, in an [Envelope] sealed by the user's [Keyset].
// [Generate] makes a keyset, and boltstore.Options.Keyset names it, for example by [File].
// [Rotate] adds a key. The next Open for writing then gives the file new data keys.
//
// Sealing binds bytes to their place: they cannot be decrypted elsewhere.
package seal

import (
	"bytes"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/daead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// Sealer seals with a file's data keys. A nil Sealer leaves everything as it is. A
// Sealer is safe for concurrent use.
type Sealer struct {
	names   tink.DeterministicAEAD
	values  tink.AEAD
	handles [2]*keyset.Handle // of names and values
}

// Envelope is a file's data keys, sealed by the key of that id in the user's
// keyset.
type Envelope struct {
	KeyID  uint32 `msgpack:"keyID"`
	Names  []byte `msgpack:"names"`
	Values []byte `msgpack:"values"`
}

var (
	namesPlace  = []byte("kubewake 1 names")
	valuesPlace = []byte("kubewake 1 values")
)

// NewSealer makes new data keys.
func NewSealer() (*Sealer, error) {
	// There is only one key, so ciphertexts need no prefix that names it.
	siv := daead.AESSIVKeyTemplate()
	siv.OutputPrefixType = tinkpb.OutputPrefixType_RAW
	names, err := keyset.NewHandle(siv)
	if err != nil {
		return nil, err
	}
	values, err := keyset.NewHandle(aead.XAES256GCM192BitNonceNoPrefixKeyTemplate())
	if err != nil {
		return nil, err
	}
	return newSealer(names, values)
}

func newSealer(names, values *keyset.Handle) (s *Sealer, err error) {
	s = &Sealer{handles: [2]*keyset.Handle{names, values}}
	if s.names, err = daead.New(names); err != nil {
		return nil, err
	}
	if s.values, err = aead.New(values); err != nil {
		return nil, err
	}
	return s, nil
}

// Wrap seals the data keys of s with the keyset's primary key.
func (m *Master) Wrap(s *Sealer) (*Envelope, error) {
	var names, values bytes.Buffer
	err := s.handles[0].WriteWithAssociatedData(keyset.NewBinaryWriter(&names), m.aead, namesPlace)
	if err == nil {
		err = s.handles[1].WriteWithAssociatedData(keyset.NewBinaryWriter(&values), m.aead, valuesPlace)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrKeyset, m.name, err)
	}
	return &Envelope{KeyID: m.primary, Names: names.Bytes(), Values: values.Bytes()}, nil
}

// Unwrap opens an envelope.
func (m *Master) Unwrap(e *Envelope) (*Sealer, error) {
	names, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(e.Names)), m.aead, namesPlace)
	if err != nil {
		return nil, m.wrong(e)
	}
	values, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(e.Values)), m.aead, valuesPlace)
	if err != nil {
		return nil, m.wrong(e)
	}
	return newSealer(names, values)
}

func (m *Master) wrong(e *Envelope) error {
	return fmt.Errorf("%w: the file is encrypted and %s does not open it; give the keyset that has the key %d", ErrKeyset, m.name, e.KeyID)
}

// Current says whether the envelope was sealed by the keyset's primary key.
func (m *Master) Current(e *Envelope) bool { return e.KeyID == m.primary }

// Name seals a name. Equal names in equal places are sealed alike.
func (s *Sealer) Name(name, place []byte) ([]byte, error) {
	if s == nil {
		return name, nil
	}
	return s.names.EncryptDeterministically(name, place)
}

// OpenName opens a name that Name has sealed.
func (s *Sealer) OpenName(sealed, place []byte) ([]byte, error) {
	if s == nil {
		return sealed, nil
	}
	return s.names.DecryptDeterministically(sealed, place)
}

// Value seals a value.
func (s *Sealer) Value(value, place []byte) ([]byte, error) {
	if s == nil {
		return value, nil
	}
	return s.values.Encrypt(value, place)
}

// OpenValue opens a value that Value has sealed.
func (s *Sealer) OpenValue(sealed, place []byte) ([]byte, error) {
	if s == nil {
		return sealed, nil
	}
	return s.values.Decrypt(sealed, place)
}
