package serve

import (
	"bufio"
	"context"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestWatchIsReviewed: another user's open watch goes on as long as a new one would be
// let in. It ends within a minute after the right, the token or the certificate's CA was
// taken away, or if the server cannot be asked for too long.
func TestWatchIsReviewed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		token bool
		take  func(c *cluster, r *remote)
		after time.Duration // the watch goes on for it
	}{
		{"the right", true, func(c *cluster, _ *remote) {
			c.may = func(authorizationv1.SubjectAccessReviewSpec) bool { return false }
		}, 0},
		{"the token", true, func(c *cluster, _ *remote) { delete(c.tokens, "token-of-ann") }, 0},
		{"the CA", false, func(_ *cluster, r *remote) {
			write(t, r.tls.ClientCA, append(r.ca.pem(), r.ca.pem()...))
		}, 0},
		{"the server", true, func(c *cluster, _ *remote) { c.down = true }, 59 * time.Minute},
		{"the server, of a certificate", false, func(c *cluster, _ *remote) { c.down = true }, 59 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			clock := fakeClock()
			s := start(t, Options{File: fileOf(t, apifile.Options{}),
				Link: c.link(t, LinkOptions{Offline: time.Hour, Clock: clock})})
			ours := newAuthority(t)
			r := s.remote(ours)
			client, header := r.client(ours, pkix.Name{CommonName: "bob"}), ""
			if tc.token {
				client, header = r.client(nil, pkix.Name{}), "Bearer token-of-ann"
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin := func() chan error {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet,
					r.addr+maps+"?watch=true&resourceVersion=0", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", header)
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() }) // it may be broken
				if resp.StatusCode != 200 {
					t.Fatal(resp.Status)
				}
				in := bufio.NewReader(resp.Body)
				if _, err := in.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, in)
					ended <- err
				}()
				return ended
			}
			all := []chan error{begin()}
			c.mu.Lock()
			tc.take(c, r)
			c.mu.Unlock()
			if tc.after > 0 {
				clock.Step(tc.after)
				all = append(all, begin()) // it is let in, and lasts no longer than the first
			}
			for _, ended := range all {
				for going := true; going; {
					clock.Step(yesFor)
					select {
					case <-ended:
						going = false
					case <-time.After(time.Millisecond): // the timer may not be set again yet
					}
				}
			}
			if ctx.Err() != nil {
				t.Error("the watch did not end")
			}
		})
	}
}

// TestWatchGoesOn: a watch that is reviewed again and allowed does not end.
func TestWatchGoesOn(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Clock: clock})})
	ours := newAuthority(t)
	r := s.remote(ours)
	done := make(chan said, 1)
	_, before := c.counts()
	go func() {
		done <- get(t, r.client(ours, pkix.Name{CommonName: "bob"}), r.addr+maps+"?watch=true&resourceVersion=0")
	}()
	for n := 1; n < 4; n++ {
		for deadline := time.Now().Add(time.Minute); ; {
			if _, reviews := c.counts(); reviews >= before+n && clock.HasWaiters() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it is not reviewed again")
			}
			time.Sleep(time.Millisecond) // between two looks: the server that reviews gives no signal
		}
		clock.Step(yesFor)
	}
	select {
	case a := <-done:
		t.Errorf("it ended: %d %s", a.code, a.body)
	default:
	}
	if err := s.Server.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

// TestCertificateOnOldConnection: a kept connection does not keep the rights of a
// certificate whose CA was taken away.
func TestCertificateOnOldConnection(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: newCluster(t).link(t, LinkOptions{})})
	r := s.remote(ours)
	bob := r.client(ours, pkix.Name{CommonName: "bob"})
	if a := get(t, bob, r.addr+maps); a.code != 200 {
		t.Errorf("%d %s", a.code, a.body)
	}
	write(t, r.tls.ClientCA, append(others.pem(), others.pem()...))
	if a := get(t, bob, r.addr+maps); !a.has(401, "not valid any more") {
		t.Errorf("%d %s", a.code, a.body)
	}
}
