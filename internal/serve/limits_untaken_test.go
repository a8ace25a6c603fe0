package serve

import (
	"bytes"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/waittest"
)

// untakenHTTP2 begins a connection in HTTP/2 that lets the server send no byte of an answer.
func untakenHTTP2(t *testing.T, r *remote) *http2.Framer {
	t.Helper()
	raw, err := net.Dial("tcp", strings.TrimPrefix(r.addr, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"}})
	t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	return f
}

// untaken sends n requests in HTTP/2 and takes no byte of their answers. It returns how many
// had each code, "reset" for those that were broken off, once all have one.
func untaken(t *testing.T, r *remote, n int, header ...string) map[string]int {
	t.Helper()
	f := untakenHTTP2(t, r)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	fields := append([]string{":method", "GET", ":scheme", "https", ":authority", "x", ":path", maps + "/x"}, header...)
	for i := range n {
		block.Reset()
		for j := 0; j < len(fields); j += 2 {
			if err := enc.WriteField(hpack.HeaderField{Name: fields[j], Value: fields[j+1]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(),
			EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	codes, known := map[string]int{}, map[uint32]bool{}
	for len(known) < n {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(codes, err)
		}
		code := ""
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			code = frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			code = "reset"
		}
		if id := frame.Header().StreamID; code != "" && !known[id] {
			known[id] = true
			codes[code]++
		}
	}
	return codes
}

// TestUntakenAnswers: in HTTP/2 an answer that its client does not take is in memory after
// the handler has ended. It keeps its place, so many of them cannot take the memory. Those of
// strangers take no places from others.
func TestUntakenAnswers(t *testing.T) {
	const most = 3
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: newCluster(t).link(t, LinkOptions{}),
		Limits: Limits{Requests: most}})
	r := s.remote(newAuthority(t))
	l := s.servers[1].Handler.(*limited)
	if codes := untaken(t, r, 50); codes["401"] > most || codes["401"]+codes["reset"]+codes["429"] != 50 {
		t.Errorf("strangers: %v", codes)
	}
	ann := []string{"authorization", "Bearer token-of-ann"}
	if codes := untaken(t, r, 1, ann...); codes["200"] != 1 {
		t.Errorf("beside strangers: %v", codes)
	}
	if codes := untaken(t, r, 50, ann...); codes["200"] >= most || codes["200"]+codes["429"]+codes["reset"] != 50 {
		t.Errorf("ann: %v", codes)
	}
	waittest.Eventually(t, "refusals last", func() bool { return len(l.refused) == 0 })
}

// TestUnreadBody: a watch needs no body. What a client sends of one in HTTP/2 waits in memory for
// as long as the watch lasts, so a connection lets little of it come.
func TestUnreadBody(t *testing.T) {
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: newCluster(t).link(t, LinkOptions{})})
	f := untakenHTTP2(t, s.remote(newAuthority(t)))
	if err := f.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	for room := uint32(1<<16 - 1); ; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.WindowUpdateFrame:
			room += frame.Increment
		case *http2.PingFrame:
			if room > 64<<10 {
				t.Errorf("a connection may send %d bytes that nobody reads", room)
			}
			return
		}
	}
}
