// Package panics reports the panics of an http.Server's requests.
package panics

import (
	"bytes"
	"errors"
	"log"
)

// Logger is for http.Server.ErrorLog. It passes the server's lines about panics on, and no
// others: clients cannot fill the log. nil gets none.
func Logger(failed func(error)) *log.Logger { return log.New(writer(failed), "", 0) }

type writer func(error)

// Write implements io.Writer. A Logger calls it once for each message.
func (w writer) Write(b []byte) (int, error) {
	if w != nil && (bytes.HasPrefix(b, []byte("http: panic serving ")) ||
		bytes.HasPrefix(b, []byte("http2: panic serving "))) {
		w(errors.New(string(b)))
	}
	return len(b), nil
}
