package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/reflector"
)

const (
	asJSON  = "application/json"
	asProto = "application/vnd.kubernetes.protobuf"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	// initialEnd marks the last event of a streamed list.
	initialEnd = "k8s.io/initial-events-end"
)

// apiRead is a read that both a server and a file answer.
type apiRead struct {
	name, query, accept string
	one                 bool // one pod, not the list
	until               string
}

var apiReads = []apiRead{
	{name: "get of one pod, JSON", accept: asJSON, one: true},
	{name: "list, JSON", query: "resourceVersion=0", accept: asJSON},
	{name: "list, protobuf", query: "resourceVersion=0", accept: asProto},
	{name: "list, table", query: "resourceVersion=0", accept: asTable},
	{name: "watch with initial events, JSON",
		query:  "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		accept: asJSON, until: initialEnd},
	{name: "watch with initial events, protobuf",
		query:  "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		accept: asProto + ";stream=watch", until: initialEnd},
}

// apiRow has the times of a read, in pairs.
type apiRow struct {
	read  apiRead
	pods  int
	pairs []apiPair
}

// apiPair has the milliseconds of a read from the file and from the server, and the
// file's bytes.
type apiPair struct{ file, server, bytes float64 }

// runAPI measures reads through a file's API beside the same reads from the server, and
// returns its table.
func runAPI(ctx context.Context, o options) (text string, err error) {
	b, err := newBench(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var rows []apiRow
	for _, n := range o.sizes {
		if _, err := b.pods.grow(ctx, n); err != nil {
			return "", err
		}
		got, err := b.apiRows(ctx, n)
		if err != nil {
			return "", err
		}
		rows = append(rows, got...)
	}
	return apiText(rows, machine(b.pods.version), b.pairs), nil
}

// apiRows fills a file with n pods, serves it, and asks it and the server in turn.
func (b *bench) apiRows(ctx context.Context, n int) ([]apiRow, error) {
	p, err := b.launch(ctx, spec{Kind: kubewake, Mode: fill, Host: b.server.Config().Host, Pods: n,
		Confirm: int(reflector.ConfirmBookmark)})
	if err != nil {
		return nil, err
	}
	if err := p.next(new(report)); err != nil {
		return nil, errors.Join(err, p.end())
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	db, err := boltstore.Open(filepath.Join(b.dir, fmt.Sprintf("pods-%d.db", n)), boltstore.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	file := httptest.NewUnstartedServer(apifile.New(db, apifile.Options{}))
	file.EnableHTTP2 = true
	file.StartTLS()
	defer file.Close()
	own := file.Client()
	own.Transport.(*http.Transport).DisableCompression = true
	cfg := b.server.Config()
	cfg.DisableCompression = true
	theirs, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	var rows []apiRow
	for _, read := range apiReads {
		row := apiRow{read: read, pods: n}
		path := "/api/v1/pods"
		if read.one {
			ns, name, _ := strings.Cut(b.pods.key(), "/")
			path = "/api/v1/namespaces/" + ns + "/pods/" + name
		}
		for range b.pairs + 1 { // the first one opens connections
			var pair apiPair
			if pair.file, pair.bytes, err = read.time(ctx, own, file.URL+path); err != nil {
				return nil, fmt.Errorf("the file's %s: %w", read.name, err)
			}
			if pair.server, _, err = read.time(ctx, theirs, cfg.Host+path); err != nil {
				return nil, fmt.Errorf("the server's %s: %w", read.name, err)
			}
			row.pairs = append(row.pairs, pair)
		}
		row.pairs = row.pairs[1:]
		progress("%d pods, %s: %.1f ms, the server %.1f ms", n, read.name, row.pairs[0].file, row.pairs[0].server)
		rows = append(rows, row)
	}
	return rows, nil
}

// time reads the whole answer, and returns its milliseconds and bytes.
func (r apiRead) time(ctx context.Context, client *http.Client, url string) (took, size float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?"+r.query, nil)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Accept", r.accept)
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return 0, 0, errors.Join(fmt.Errorf("%s: %s", resp.Status, text), err)
	}
	n := int64(0)
	if r.until == "" {
		n, err = io.Copy(io.Discard, resp.Body)
	} else {
		n, err = readUntil(resp.Body, r.until)
	}
	return ms(time.Since(began)), float64(n), err
}

// readUntil reads until the text has arrived, and returns the number of bytes.
func readUntil(body io.Reader, text string) (n int64, err error) {
	r := bufio.NewReaderSize(body, 64<<10)
	var last []byte // the end of the previous read
	for {
		if _, err := r.Peek(1); err != nil {
			return n, err
		}
		piece, err := r.Peek(r.Buffered())
		if err != nil {
			return n, err
		}
		n += int64(len(piece))
		last = append(last, piece...)
		if bytes.Contains(last, []byte(text)) {
			return n, nil
		}
		last = append(last[:0], last[max(0, len(last)-len(text)):]...)
		if _, err := r.Discard(len(piece)); err != nil {
			return n, err
		}
	}
}

// apiText is the table.
func apiText(rows []apiRow, machine string, pairs int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s.\nMedians of %d pairs; the ratio is the median of the pairs' ratios.\n", machine,
		pairs)
	b.WriteString("\n| pods | read | file | kube-apiserver | ratio | body |\n|---:|---|---:|---:|---:|---:|\n")
	for _, r := range rows {
		m := medians(r.pairs, func(p apiPair) (float64, float64) { return p.file, p.server })
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", thousands(r.pods), r.read.name, duration(m.kubewake),
			duration(m.stock), ratio(m.ratio), size(r.pairs[0].bytes))
	}
	return b.String()
}
