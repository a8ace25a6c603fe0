package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// program is one that is measured.
type program struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	reports *json.Decoder
	log     bytes.Buffer
}

// launch starts a program; spec lacks what all have in common.
func (b *bench) launch(ctx context.Context, s spec) (*program, error) {
	cfg := b.server.Config()
	s.Token, s.CA = cfg.BearerToken, cfg.CAData
	if s.Pods > 0 {
		s.Key = b.pods.key()
	}
	s.DB = filepath.Join(b.dir, fmt.Sprintf("pods-%d.db", s.Pods))
	if b.profile != "" {
		s.Profile = filepath.Join(b.profile, fmt.Sprintf("%s-%s-%d-%d", s.Kind, s.Mode, s.Pods, time.Now().UnixMilli()))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &program{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Stderr = &p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.reports = json.NewDecoder(out)
	s.Started = time.Now()
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p.cmd.Env = append(os.Environ(), measured.SpecEnv+"="+string(text))
	return p, p.cmd.Start()
}

// next reads the program's next report.
func (p *program) next(into any) error {
	if err := p.reports.Decode(into); err != nil {
		return fmt.Errorf("a program ended early: %w", err)
	}
	return nil
}

// end lets the program end, and waits for it.
func (p *program) end() error {
	_ = p.stdin.Close() // it may have ended by itself
	if err := p.cmd.Wait(); err != nil {
		return errors.Join(err, errors.New(p.log.String()))
	}
	return nil
}

func (p *program) processor() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// objectMemory is the memory for decoded objects: that of a program without a memory
// limit, unless KUBEWAKE_BENCH_MEMORY states another, in bytes.
func objectMemory() int64 {
	if n, err := strconv.ParseInt(os.Getenv("KUBEWAKE_BENCH_MEMORY"), 10, 64); err == nil {
		return n
	}
	return 8 << 20
}
