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

// program is a measured program.
type program struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	reports *json.Decoder
	log     bytes.Buffer
}

// launch starts a program, and adds to its spec the fields that all programs share.
func (b *bench) launch(ctx context.Context, s spec) (*program, error) {
	cfg := b.server.Config()
	s.Token, s.CA = cfg.BearerToken, cfg.CAData
	if s.Pods > 0 {
		s.Key = b.pods.key()
	}
	s.DB = b.file(s.Kind, s.Pods)
	if b.profile != "" {
		s.Profile = filepath.Join(b.profile, fmt.Sprintf("%s-%s-%d-%d", s.Kind, s.Mode, s.Pods, time.Now().UnixMilli()))
	}
	path, ok := b.programs[s.Kind]
	if !ok {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	p := &program{cmd: exec.CommandContext(ctx, path)}
	var err error
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
	if s.Kind == measured.Listed {
		p.cmd.Env = append(p.cmd.Env, "KUBE_FEATURE_WatchListClient=false")
	}
	return p, p.cmd.Start()
}

// file is the path of a program's file for a number of pods.
func (b *bench) file(k kind, n int) string {
	ext := "db"
	if k == measured.SQLite {
		ext = "sqlite"
	}
	return filepath.Join(b.dir, fmt.Sprintf("pods-%d.%s", n, ext))
}

// next reads the program's next report.
func (p *program) next(into any) error {
	if err := p.reports.Decode(into); err != nil {
		return fmt.Errorf("a program ended early: %w", err)
	}
	return nil
}

// end makes the program end, and waits for it.
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
