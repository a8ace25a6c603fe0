package live

import (
	"bufio"
	"bytes"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// withSecrets ends a request to the API that asks for Secrets.
const withSecrets = " HTTP/1.1\r\nHost: x\r\nKubewake-Options: {\"secrets\":true}\r\n\r\n"

// TestNeverReads: clients that ask for much and never read lose their connection.
// Neither the writer nor other clients wait for them, and their answers do not pile up
// in memory.
func TestNeverReads(t *testing.T) {
	path := testPath(t)
	n := 2000 // 80 MB as JSON
	if testing.Short() {
		n = 500
	}
	db, s := world(t, path, n, 20_000)
	start(t, db, shortLimits)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var conns []net.Conn
	for range shortLimits.conns {
		conns = append(conns, raw(t, path, "GET /api/v1/secrets"+withSecrets))
	}
	conns = append(conns, raw(t, path, "GET /kubewake/snapshot HTTP/1.1\r\nHost: x\r\n\r\n"))
	served(t, path, s)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 40<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	for _, c := range conns {
		ended(t, c)
	}
}

// TestNeverReadsTheAPI: the same holds for lists and watches of the API in HTTP/1.1. A watch
// that is read stays, however long it is silent.
func TestNeverReadsTheAPI(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 500, 20_000)
	start(t, db, slowToRead())
	quiet := raw(t, path, "GET /api/v1/secrets?watch=1&resourceVersion=100"+withSecrets)
	answer := bufio.NewReader(quiet)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatal(line, err)
	}
	for _, query := range []string{"", "?watch=1&resourceVersion=0"} {
		for range 2 * shortLimits.conns {
			raw(t, path, "GET /api/v1/secrets"+query+withSecrets)
		}
		served(t, path, s) // once most of them have lost their connections
	}
	relist(t, s, 499, 20_000, "200")
	if err := quiet.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for line := ""; !strings.Contains(line, `"DELETED"`); {
		var err error
		if line, err = answer.ReadString('\n'); err != nil {
			t.Fatal("the watch that was read:", err)
		}
	}
}

// TestNeverSends: silent clients, and those that send a part of a request or body, lose
// their connection.
func TestNeverSends(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 10, 10)
	start(t, db, shortLimits)
	var conns []net.Conn
	for _, part := range []string{"", "GET", "GET /kubewake/status HTTP/1.1\r\nHost: x\r\n",
		"GET /kubewake/status HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"GET /kubewake/status HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /kubewake/status HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"\x00\x01\x02\r\n\r\n"} {
		conns = append(conns, raw(t, path, part))
	}
	served(t, path, s)
	for _, c := range conns {
		ended(t, c)
	}
}

// TestHugeHeader: a header of 1 GiB is neither read nor kept.
func TestHugeHeader(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 10, 10)
	start(t, db, shortLimits)
	const field = "GET /kubewake/status HTTP/1.1\r\nHost: x\r\nX: "
	for _, begin := range []string{field, "GET /", "GET /api/v1/secrets?labelSelector="} {
		c := raw(t, path, begin)
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		sent := 0
		if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for ; sent < 1<<30; sent += len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				break
			}
		}
		if sent >= 16<<20 {
			t.Errorf("the server took %d MiB of a header", sent>>20)
		}
	}
	served(t, path, s)
}

// TestConnectionsAreBounded: few connections are served at a time, however many there are.
func TestConnectionsAreBounded(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 10, 10)
	start(t, db, shortLimits)
	before := runtime.NumGoroutine()
	for range 100 {
		raw(t, path, "")
	}
	if n := runtime.NumGoroutine() - before; n > 3*shortLimits.conns {
		t.Errorf("%d goroutines for 100 connections", n)
	}
	served(t, path, s)
}
