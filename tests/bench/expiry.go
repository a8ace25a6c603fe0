package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// expiryReport is what the expiry of its version cost a running program.
type expiryReport struct {
	liveReport
	Changes int
	// Equal and Quiet are from the moment the program found its connection
	// broken, with the server ready: until it was told of all changes, and
	// until the last call of its handler.
	Equal, Quiet time.Duration
}

type expiryPair struct{ kubewake, stock expiryReport }

// expiry measures a pair of running programs whose API server is restarted,
// which makes every resume too old, while one pod in a hundred changes.
func (b *bench) expiry(ctx context.Context, round int) (p expiryPair, err error) {
	if p.kubewake, err = b.expire(ctx, kubewake, fmt.Sprint(round, " kubewake"), false); err != nil {
		return p, err
	}
	if p.stock, err = b.expire(ctx, stock, fmt.Sprint(round, " client-go"), false); err != nil {
		return p, err
	}
	progress("API server restarted, %d changes: equal after %v (kubewake) and %v (client-go)",
		p.kubewake.Changes, p.kubewake.Equal, p.stock.Equal)
	return p, nil
}

// expire runs one program and holds it still while its link is cut, the pods
// change and the server restarts, so that no backoff of the outage is measured.
// Its pods are marked with round.
func (b *bench) expire(ctx context.Context, k kind, round string, limited bool) (r expiryReport, err error) {
	n := slices.Max(b.sizes)
	link, err := newGate(b.server.Config().Host)
	if err != nil {
		return r, err
	}
	defer link.close()
	p, err := b.launch(ctx, spec{Kind: k, Mode: live, Host: link.host(), Pods: n, Changes: n / 100, Mark: round, Limited: limited})
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
	if r.Changes, err = b.pods.change(ctx, round); err != nil {
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
	r.Equal, r.Quiet = r.Told.Sub(mended), r.LastCall.Sub(mended)
	return r, p.end()
}
