package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/internal/serve"
)

// server serves a file's API until it is interrupted.
type server struct {
	streams genericiooptions.IOStreams
	flags   *genericclioptions.ConfigFlags
	db      dbFile
	access  access
	pass    bool
	hangups <-chan os.Signal // in place of the process's, for tests
}

func newServe(streams genericiooptions.IOStreams) *cobra.Command {
	cmd, _ := serveCommand(streams)
	return cmd
}

func serveCommand(streams genericiooptions.IOStreams) (*cobra.Command, *server) {
	s := &server{streams: streams, flags: genericclioptions.NewConfigFlags(false)}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the file as a Kubernetes API, for kubectl and any other client, until interrupted",
		Long: "Serve the file as a Kubernetes API, for kubectl and any other client, until interrupted. A " +
			"mirror may\n" +
			"keep the file up to date, or no program has it open. This user gets in by a unix socket and by the " +
			"kubeconfig that is\n" +
			"written, others only over TLS. docs/serve.md says who may read what, and what happens offline.",
		Example: `  kubewake serve --db cache.db                     # kubectl --kubeconfig cache.db.kubeconfig get pods
  kubewake serve --pass-through --db cache.db      # writes, logs, and what the file lacks go to the server
  kubewake serve --pass-through --db cache.db \
    --tls-listen :6444 --tls-cert tls.crt --tls-key tls.key --token-review   # other users, by their own rights`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	s.flags.ClusterName = nil // --cluster names one of the file's
	s.flags.AddFlags(cmd.Flags())
	s.db.addFlags(cmd)
	s.db.clockFlag(cmd)
	s.db.clusterFlag(cmd)
	s.access.addFlags(cmd)
	cmd.Flags().BoolVar(&s.pass, "pass-through", false,
		"send writes, and reads of objects that the file does not have, to the server of the kubeconfig")
	return cmd, s
}

func (s *server) logf(format string, args ...any) {
	fmt.Fprintf(s.streams.ErrOut, format+"\n", args...)
}

func (s *server) run(ctx context.Context) error {
	if err := s.access.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if s.hangups != nil || !signal.Ignored(syscall.SIGHUP) { // as nohup asks for
		wg.Go(func() { s.reloads(ctx, cancel) })
	}
	cluster, _, err := s.db.served()
	if err != nil {
		return err
	}
	file := serve.NewShared(s.db.path, s.db.open, s.access.options(cluster, loggerTo(s.streams.ErrOut)))
	link, err := s.link(file)
	if err == nil {
		err = file.Ready()
	}
	if err == nil {
		var end func() error
		s.access.unsafe = s.db.unsafe
		if end, err = s.access.serve(file, link, s.db.path, s.logf); err == nil {
			<-ctx.Done()
			err = end()
		}
	}
	return errors.Join(err, file.Close())
}

// reloads keeps SIGHUP, which reloads a mirror beside it, from ending the server.
func (s *server) reloads(ctx context.Context, end func()) {
	onHangup(ctx, s.hangups, s.streams.ErrOut, end, func() {
		s.logf("SIGHUP: there is nothing to reload; certificates are read again when they change")
	})
}

// link leads to the server of the kubeconfig, if requests may go there.
func (s *server) link(file *serve.Shared) (*serve.Link, error) {
	if !s.pass {
		return nil, nil
	}
	cfg, err := clientConfig(s.flags, func(*rest.Config) {})
	if err != nil {
		return nil, err
	}
	return s.access.link(cfg, file.Clusters)
}
