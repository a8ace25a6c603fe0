package live

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// FuzzRequests sends any bytes to the socket. The connection ends within its limits. No
// answer contains secrets unless the request asks for them. The next client is served.
func FuzzRequests(f *testing.F) {
	path := testPath(f)
	db, _ := world(f, path, 3, 20)
	l := defaultLimits
	l.header, l.read, l.write = 4<<10, 100*time.Millisecond, 200*time.Millisecond
	start(f, db, l)
	sock, err := SocketPath(path)
	if err != nil {
		f.Fatal(err)
	}
	get := "GET %s HTTP/1.1\r\nHost: kubewake\r\nConnection: close\r\n\r\n"
	for _, target := range []string{statusPath, snapshotPath, secretsPath,
		"/api/v1/namespaces/ns0/secrets/s00000", secretsPath + "?watch=1&timeoutSeconds=1",
		secretsPath + "?limit=1&continue=%ff", "/apis", "/", "/kubewake/../api/v1/%00"} {
		f.Add([]byte(strings.Replace(get, "%s", target, 1)))
	}
	f.Add([]byte("POST /kubewake/status HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nx"))
	f.Add([]byte("GET /kubewake/status HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"))
	f.Add([]byte("GET /kubewake/status HTTP/1.0\r\n\r\nGET /kubewake/status HTTP/1.0\r\n\r\n"))
	const head = "GET " + secretsPath + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nKubewake-Options: "
	for _, options := range []string{`{"secrets":true}`, `{"secrets":1}`, "{",
		`{"cluster":"x","source":"y","fresh":1,"warnAfter":-1,"otherwise":true}`} {
		f.Add([]byte(head + options + "\r\n\r\n"))
	}
	f.Add([]byte("\x16\x03\x01\x02\x00"))
	f.Fuzz(func(t *testing.T, request []byte) {
		c, err := net.Dial("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(request) // the server may have had enough of it
		_ = c.(*net.UnixConn).CloseWrite()
		b, err := io.ReadAll(c)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Fatalf("the connection does not end: %q", request)
		}
		text := string(b)
		asked, err := url.QueryUnescape(string(request))
		asked = strings.ToLower(asked)
		asks := err != nil || strings.Contains(asked, "kubewake-options") || strings.Contains(asked, "snapshot")
		if strings.Contains(text, "hunter2") && !asks {
			t.Fatalf("%q was answered with secrets", request)
		}
		if len(request) > 0 && len(b) > 0 {
			if _, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil); err != nil {
				t.Fatalf("%q was answered with %.200q", request, text)
			}
		}
		if db.Err() != nil {
			t.Fatal(db.Err())
		}
		if _, err := db.States(); err != nil {
			t.Fatal(err)
		}
	})
}
