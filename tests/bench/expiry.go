package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// expiryReport is the cost to a running program when its version expires.
type expiryReport struct {
	liveReport
	Marked, Deleted int // pods
	// Equal and Quiet begin when the program, with the server ready, finds its connection
	// broken. Equal ends when its handler has been told all changes, Quiet at the
	// handler's last call. Back is from the ERROR event until it watches again.
	Equal, Quiet, Back time.Duration
}

// expiryRound is the cost to kubewake, to kubewake without the comparison of raw pages,
// and to client-go, one after the other.
type expiryRound struct {
	kubewake, decoded, stock expiryReport
	list                     int64 // bytes of one list without pages, compressed
}

// expiry measures running programs whose API server is restarted while one pod in a
// hundred changes. After the restart every resume is too old.
func (b *bench) expiry(ctx context.Context, round int) (r expiryRound, err error) {
	n := slices.Max(b.sizes)
	if r.kubewake, err = b.expire(ctx, kubewake, n, fmt.Sprint(round, " kubewake"), false); err != nil {
		return r, err
	}
	if r.decoded, err = b.expire(ctx, kubewake, n, fmt.Sprint(round, " decoded"), true); err != nil {
		return r, err
	}
	if r.stock, err = b.expire(ctx, stock, n, fmt.Sprint(round, " client-go"), false); err != nil {
		return r, err
	}
	if r.list, err = b.oneList(ctx); err != nil {
		return r, err
	}
	progress("API server restarted: watching again after %v (kubewake), %v (pages decoded) and %v (client-go)",
		r.kubewake.Back, r.decoded.Back, r.stock.Back)
	return r, nil
}

// expire runs one program and stops it while its link is cut, the pods change and the
// server restarts, so the backoff of the outage is not measured. Its pods are marked with
// round.
func (b *bench) expire(ctx context.Context, k kind, n int, round string, decoded bool) (r expiryReport, err error) {
	link, err := newGate(b.server.Config().Host)
	if err != nil {
		return r, err
	}
	defer link.close()
	r.Marked, r.Deleted = touched(n)
	p, err := b.launch(ctx, spec{Kind: k, Mode: live, Host: link.host(), Pods: n, Changes: r.Marked,
		Deletes: r.Deleted, Mark: round, Limited: true, Decoded: decoded})
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.cmd.Process.Kill(), p.end())
		}
	}()
	if err := p.next(&report{}); err != nil {
		return r, err
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return r, err
	}
	link.cut()
	if err := b.pods.change(ctx, round); err != nil {
		return r, err
	}
	if err := b.server.RestartAPIServer(ctx); err != nil {
		return r, err
	}
	if err := b.pods.served(ctx); err != nil {
		return r, err
	}
	link.mend()
	mended := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return r, err
	}
	if err := p.next(&r.liveReport); err != nil {
		return r, err
	}
	r.Equal, r.Quiet, r.Back = r.Told.Sub(mended), r.LastCall.Sub(mended), r.Watching.Sub(r.Expired)
	if r.Expired.IsZero() || r.Watching.IsZero() {
		return r, errors.New("the program was not told that its version is too old")
	}
	if err := p.end(); err != nil {
		return r, err
	}
	return r, b.pods.restore(ctx)
}

// oneList is the size of a compressed list of all pods without pages, in bytes.
func (b *bench) oneList(ctx context.Context) (int64, error) {
	cfg := b.server.Config()
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf"
	w := &measured.Wire{}
	w.Attach(cfg)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return 0, err
	}
	_, err = client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	return w.Read().Bodies, err
}
