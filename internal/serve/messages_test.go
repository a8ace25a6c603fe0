package serve

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/waittest"
)

// listens begins a watch over WebSocket at the socket.
func listens(t *testing.T, s *served, query string) *websocket.Conn {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(s.dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })                                    // the server may have closed it
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil { // for a busy machine
		t.Fatal(err)
	}
	cfg, err := websocket.NewConfig("ws://kubewake/api/v1/configmaps?watch=true&"+query, "http://kubewake")
	if err != nil {
		t.Fatal(err)
	}
	ws, err := websocket.NewClient(cfg, conn)
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

// frames are the next frames of a server's message: what kind each has, and their text.
func frames(t *testing.T, in *bufio.Reader) (kinds []byte, text string) {
	t.Helper()
	for {
		head := make([]byte, 2)
		_, err := io.ReadFull(in, head)
		size := uint64(head[1])
		switch long := make([]byte, 8); {
		case err != nil:
		case size == 126:
			_, err = io.ReadFull(in, long[6:])
			size = binary.BigEndian.Uint64(long)
		case size == 127:
			_, err = io.ReadFull(in, long)
			size = binary.BigEndian.Uint64(long)
		}
		var body strings.Builder
		if err == nil {
			_, err = io.CopyN(&body, in, int64(size))
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds, text = append(kinds, head[0]), text+body.String()
		if head[0]&0x80 != 0 {
			return kinds, text
		}
	}
}

const socketHeader = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://x\r\n"

func noWatches(t *testing.T, servers []*http.Server) {
	t.Helper()
	waittest.Eventually(t, "its place is taken", func() bool {
		for _, srv := range servers {
			if srv.Handler.(*limited).long.taken() > 0 {
				return false
			}
		}
		return true
	})
}

// TestWatchOverWebSocket: the file answers a watch over WebSocket, whether or not there is a
// server. It has the events of the same watch over HTTP, each as a message.
func TestWatchOverWebSocket(t *testing.T) {
	for _, tc := range []struct {
		name               string
		linked, down, owns bool
	}{
		{"no link", false, false, true},
		{"no link, at the owner", false, false, false},
		{"the server is there", true, false, true},
		{"the server is there, at the owner", true, false, false},
		{"offline", true, true, true},
		{"offline, at the owner", true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := filetest.Open(t, boltstore.Options{})
			store := filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{})
			filetest.Relist(t, store, "10",
				&corev1.ConfigMap{ObjectMeta: object("a", "x", 1)}, &corev1.ConfigMap{ObjectMeta: object("b", "y", 2)})
			o := Options{File: Own(db, apifile.Options{})}
			if !tc.owns {
				o.File = sharedOf(t, db)
			}
			c := newCluster(t)
			if tc.linked {
				o.Link = c.link(t, LinkOptions{})
				c.setDown(tc.down)
			}
			s := start(t, o)
			const query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
			plain := watchOf(t, s, query)
			ws := listens(t, s, query)
			q := feed(t, store)
			for i, size := range []int{10, 1000, 300 << 10, 20, 30} {
				text := strings.Repeat("é", size)
				changed := &corev1.ConfigMap{ObjectMeta: object("a", "x", 11+i), Data: map[string]string{"k": text}}
				if err := q.Update(changed); err != nil {
					t.Fatal(err)
				}
				if err := q.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := q.Delete(&corev1.ConfigMap{ObjectMeta: object("b", "y", 20)}); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(ws)
			kinds := "ADDED ADDED BOOKMARK MODIFIED MODIFIED MODIFIED MODIFIED MODIFIED DELETED"
			for i, kind := range strings.Fields(kinds) {
				want, err := plain.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				got, err := lines.ReadString('\n')
				if err != nil || got != want || !strings.Contains(got, `"type":"`+kind+`"`) {
					t.Errorf("event %d: %d bytes, %v, want %d: %.100q", i, len(got), err, len(want), got)
				}
			}
			if passed, _ := c.counts(); passed > 0 {
				t.Errorf("the server got %q", c.last().what)
			}
		})
	}
}

// TestMessages: an event is one frame, or several if it is large. The client's pings are
// answered, and its end ends the watch, as the end of the watch ends the messages.
func TestMessages(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{}), "10",
		&corev1.ConfigMap{ObjectMeta: object("a", "x", 1)},
		&corev1.ConfigMap{ObjectMeta: object("b", "y", 2), Data: map[string]string{"k": strings.Repeat("y", 30<<10)}},
		&corev1.ConfigMap{ObjectMeta: object("c", "z", 3), Data: map[string]string{"k": strings.Repeat("z", 200<<10)}})
	s := start(t, Options{File: Own(db, apifile.Options{})})
	for _, tc := range []struct {
		name, query string
		send        string
		want        string // the payload of the close frame
	}{
		{"the client ends it", "", "\x88\x82\x00\x00\x00\x00\x03\xe8", "\x03\xe8"},
		{"the time ends it", "&timeoutSeconds=1", "", "\x03\xe8"},
	} {
		conn := s.raw("GET /api/v1/configmaps?watch=true" + tc.query + " HTTP/1.1\r\n" + socketHeader +
			"Sec-WebSocket-Protocol: anything\r\n\r\n")
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols ||
			resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
			resp.Header.Get("Sec-WebSocket-Protocol") != "anything" {
			t.Fatal(resp, err)
		}
		for i, object := range []string{`"ax"`, `"by"`, `"cz"`} {
			kinds, text := frames(t, in)
			large, line := i == 2, strings.Count(text, "\n") == 1 && strings.HasSuffix(text, "\n")
			if kinds[0]&0x7f != websocket.TextFrame || (len(kinds) > 1) != large || !line ||
				!strings.Contains(text, object) {
				t.Errorf("%s: %s: frames %x: %.100q", tc.name, object, kinds, text)
			}
		}
		if _, err := io.WriteString(conn,
			"\x89\x83\x00\x00\x00\x00abc"+"\x81\x83\x00\x00\x00\x00abc"+tc.send); err != nil {
			t.Fatal(err)
		}
		if kinds, text := frames(t, in); kinds[0] != 0x80|websocket.PongFrame || text != "abc" {
			t.Errorf("%s: a ping: %x %q", tc.name, kinds, text)
		}
		if kinds, text := frames(t, in); kinds[0] != 0x80|websocket.CloseFrame || text != tc.want {
			t.Errorf("%s: %x %q", tc.name, kinds, text)
		}
		if b, err := io.ReadAll(in); len(b) > 0 || err != nil {
			t.Errorf("%s: after the end: %q %v", tc.name, b, err)
		}
		noWatches(t, s.servers)
	}
}

// TestSocketRefused: what cannot be a watch over WebSocket is refused as at an API server,
// and gives its place back.
func TestSocketRefused(t *testing.T) {
	s := start(t, Options{File: fileOf(t, apifile.Options{})})
	const path = "/api/v1/configmaps?watch=true"
	for _, tc := range []struct {
		name, path, header string
		code               int
	}{
		{"no origin", path, strings.Replace(socketHeader, "Origin:", "X-Origin:", 1), 403},
		{"no key", path, strings.Replace(socketHeader, "Sec-WebSocket-Key:", "X-Key:", 1), 400},
		{"another version", path, strings.Replace(socketHeader, ": 13", ": 12", 1), 400},
		{"two protocols", path, socketHeader + "Sec-WebSocket-Protocol: a, b\r\n", 400},
		{"a version that is none", path + "&resourceVersion=x", socketHeader, 500},
		{"a type that the file does not have", "/apis/apps/v1/deployments?watch=true", socketHeader, 404},
		{"no upgrade", path + "&timeoutSeconds=1", strings.Replace(socketHeader, "Connection: Upgrade\r\n", "", 1),
			200},
		{"protobuf", path + "&timeoutSeconds=1", socketHeader + "Accept: Application/vnd.kubernetes.protobuf\r\n", 200},
	} {
		conn := s.raw("GET " + tc.path + " HTTP/1.1\r\n" + tc.header + "\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != tc.code {
			t.Errorf("%s: %v %v, want %d", tc.name, resp, err, tc.code)
			continue
		}
		_ = resp.Body.Close() // only the code counts
		noWatches(t, s.servers)
	}
}

// TestSocketPassedOn: a watch over WebSocket of what the file does not have goes to the server as
// it came.
func TestSocketPassedOn(t *testing.T) {
	for name, file := range map[string]File{"own": fileOf(t, apifile.Options{}),
		"the owner's": sharedOf(t, filled(t))} {
		c := newCluster(t)
		s := start(t, Options{File: file, Link: c.link(t, LinkOptions{})})
		for _, want := range []int{101, 503} {
			conn := s.raw("GET /api/v1/pods?watch=true HTTP/1.1\r\n" + socketHeader + "\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%s: %v %v, want %d", name, resp, err, want)
			}
			_ = resp.Body.Close() // only the code counts
			if got := c.last(); got.what != "GET /api/v1/pods" || got.as != "own" ||
				got.header.Get("Origin") != "https://x" {
				t.Errorf("%s: %+v", name, got)
			}
			c.setDown(true)
		}
	}
}

// TestMessagesNotTaken: a client that takes no messages loses its connection and its place,
// and so does one that sends pings and takes no answers.
func TestMessagesNotTaken(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	store := filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{})
	filetest.Relist(t, store, "10")
	s := start(t, Options{File: Own(db, apifile.Options{}), Limits: Limits{Stall: 100 * time.Millisecond}})
	listens(t, s, "resourceVersion=10")
	pings := listens(t, s, "resourceVersion=10&labelSelector=none")
	go func() {
		ping, err := pings.NewFrameWriter(websocket.PingFrame)
		for err == nil {
			_, err = ping.Write(bytes.Repeat([]byte("x"), 100)) // until the server ends the connection
		}
	}()
	q := feed(t, store)
	large := map[string]string{"k": strings.Repeat("x", 100<<10)}
	for i := range 100 {
		if err := q.Update(&corev1.ConfigMap{ObjectMeta: object("a", "x", 11+i), Data: large}); err != nil {
			t.Fatal(err)
		}
	}
	noWatches(t, s.servers)
}

// TestMessagesEnd: when the server closes, a watch over WebSocket ends in order, as one over
// HTTP. A client that takes nothing does not hold it up.
func TestMessagesEnd(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	store := filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{})
	filetest.Relist(t, store, "10")
	s := start(t, Options{File: Own(db, apifile.Options{})})
	takes, idle := listens(t, s, "resourceVersion=10&labelSelector=none"), listens(t, s, "resourceVersion=10")
	q := feed(t, store)
	large := map[string]string{"k": strings.Repeat("x", 100<<10)}
	for i := range 100 {
		if err := q.Update(&corev1.ConfigMap{ObjectMeta: object("a", "x", 11+i), Data: large}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := idle.Read(make([]byte, 1)); err != nil { // the rest follows
		t.Fatal(err)
	}
	servers := s.servers
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(takes); len(b) > 0 || err != nil {
		t.Errorf("%q %v", b, err)
	}
	noWatches(t, servers)
}
