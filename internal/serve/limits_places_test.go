package serve

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/waittest"
)

// badly is a server that breaks requests in many ways. It ends each one once its client has
// left.
func badly(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	switch rand.IntN(9) {
	case 0:
		panic(http.ErrAbortHandler)
	case 1:
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"kind":"APIGroupList"`) // the client sees the rest missing
	case 2:
		if _, err := io.Copy(io.Discard, r.Body); err == nil { // only then net/http sees the client leave
			<-r.Context().Done()
		}
	case 3:
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // likewise
		panic(http.ErrAbortHandler)
	case 4:
		// to HEAD the answer is complete
		if _, err := io.Copy(io.Discard, r.Body); err != nil || r.Method == http.MethodHead {
			return
		}
		_, _ = io.WriteString(w, "a beginning") // the client may have left
		_ = c.Flush()
		<-r.Context().Done()
	case 5:
		http.Error(w, "no", http.StatusInternalServerError)
	case 6, 7:
		conn, buf, err := c.Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		// the client may have left
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		_, _ = buf.ReadByte()
	default:
		_, _ = io.Copy(w, r.Body) // the client may have left
	}
}

// leaving is a body that breaks off.
type leaving struct {
	left  int
	leave func()
}

func (l *leaving) Read(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		l.leave()
		return 0, io.ErrUnexpectedEOF
	}
	return len(b), nil
}

// TestPlacesAreGivenBack: requests that break on either side, in any way, leave no place
// taken.
func TestPlacesAreGivenBack(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(badly))
	defer server.Close()
	link := linkTo(t, server, LinkOptions{})
	s := start(t, Options{File: fileOf(t, apifile.Options{Secrets: true}), Link: link,
		Limits: Limits{Requests: 12, Watches: 12, Send: time.Second}})
	s.inTime = within(50 * time.Millisecond)
	paths := []string{maps, maps + "?watch=1", "/api/v1/pods", "/api/v1/pods?watch=1", "/apis", "/api",
		"/apis/apps/v1", "/version", "/openapi/v3", "/openapi/v3/api/v1",
		selfReviewPath, "/api/v1/namespaces/a/pods/p/log?follow=1", "/api/v1/namespaces/a/pods/p/exec",
		"/api/v1/namespaces/a/services/s/proxy/x", "/api/v1/watch/pods", "/metrics"}
	var under sync.WaitGroup
	for range 8 {
		under.Go(func() {
			for range 150 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(30))*time.Millisecond)
				method := []string{"GET", "GET", "POST", "DELETE", "HEAD"}[rand.IntN(5)]
				var body io.Reader
				if rand.IntN(2) == 0 {
					body = &leaving{rand.IntN(100_000), cancel}
				}
				r, err := http.NewRequestWithContext(ctx, method, local+paths[rand.IntN(len(paths))], body)
				if err != nil {
					t.Error(err)
				}
				if rand.IntN(4) == 0 {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", "websocket")
				}
				if rand.IntN(3) == 0 {
					r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
				}
				if resp, err := s.socket.Do(r); err == nil {
					if resp.StatusCode != http.StatusSwitchingProtocols {
						_, _ = io.CopyN(io.Discard, resp.Body, rand.Int64N(2000)) // it breaks off
					}
					_ = resp.Body.Close()
				}
				cancel()
				link.reviews.reached() // the server is asked again
				s.documents.reached()
			}
		})
	}
	under.Wait()
	s.socket.CloseIdleConnections()
	l := s.servers[0].Handler.(*limited)
	waittest.Eventually(t, "places are taken", func() bool {
		return l.short.taken()+l.long.taken()+l.waiting.taken()+l.bodies.taken() == 0
	})
}

func (p *places) taken() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, held := range p.held {
		n += held
	}
	return n
}

// TestPlaces: a user leaves as much as he has, so that there is room for others, however many
// places it has been. This user may have all.
func TestPlaces(t *testing.T) {
	p := newPlaces(16)
	for user, want := range []int64{8, 4, 2, 1} {
		name := string(rune('a' + user))
		var got int64
		for p.take(name, 1) {
			got++
		}
		if got != want {
			t.Errorf("user %s has %d, not %d", name, got, want)
		}
	}
	for range 8 {
		p.give("a", 1)
	}
	if p.take("", 10) || !p.take("", 9) || p.take("e", 1) {
		t.Error("this user does not get what is left")
	}
	p.give("", 9)
	for user, n := range map[string]int64{"b": 4, "c": 2, "d": 1} {
		p.give(user, n)
	}
	if p.taken() != 0 || len(p.held) != 0 || p.free != 16 {
		t.Errorf("%+v", p)
	}
}
