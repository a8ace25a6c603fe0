// Package sealtest gives tests a keyset.
package sealtest

import (
	"os"
	"strings"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
)

// Variable, if set in the environment to anything, makes the tests that use
// Default run on encrypted files.
const Variable = "KUBEWAKE_TEST_ENCRYPTED"

// content is a keyset for tests only.
const content = `{"primaryKeyId":1495226049,"key":[{"keyData":{
	"typeUrl":"type.googleapis.com/google.crypto.tink.AesGcmKey",
	"value":"GiDNEeAYxf3iR4lFhkbZZVu5nKIwG+3EkuAZEFd/XK+G8g==",
	"keyMaterialType":"SYMMETRIC"},"status":"ENABLED","keyId":1495226049,"outputPrefixType":"TINK"}]}`

// Keyset returns the same keyset each time.
func Keyset() *seal.Keyset {
	return seal.Func("of the tests", func() (*keyset.Handle, error) {
		return insecurecleartextkeyset.Read(keyset.NewJSONReader(strings.NewReader(content)))
	})
}

// Default is Keyset if [Variable] is set, otherwise nil.
func Default() *seal.Keyset {
	if os.Getenv(Variable) == "" {
		return nil
	}
	return Keyset()
}
