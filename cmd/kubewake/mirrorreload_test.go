package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// configured is a mirror that runs by a config file.
type configured struct {
	t       *testing.T
	sim     *kubesim.Server
	dir     string
	db      string
	config  string
	mirror  *mirror
	log     *buffer
	hangups chan os.Signal
	end     func()
}

// newConfigured runs a mirror with these arguments, by a config file with these lines and
// those that name file and server. Without lines there is no config file.
func newConfigured(t *testing.T, lines string, args ...string) *configured {
	t.Helper()
	c := prepared(t)
	c.start(lines, args...)
	return c
}

// prepared is a mirror that does not run yet.
func prepared(t *testing.T) *configured {
	t.Helper()
	c := &configured{t: t, sim: kubesim.New(kubesim.Options{}), dir: t.TempDir(), log: &buffer{},
		hangups: make(chan os.Signal)}
	if _, err := c.sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.sim.Close)
	t.Setenv("HOME", c.dir) // kubectl's cache
	t.Setenv("KUBECONFIG", "")
	c.db, c.config = filepath.Join(c.dir, "f.db"), filepath.Join(c.dir, "mirror.yaml")
	c.create("web", "a")
	c.create("other", "b")
	return c
}

func (c *configured) start(lines string, args ...string) {
	c.t.Helper()
	if lines == "" {
		args = append(args, "--db", c.db, "--server", c.sim.URL())
	} else {
		c.write(lines)
		args = append(args, "--config", c.config)
	}
	cmd, m := mirrorCommand(genericiooptions.IOStreams{Out: io.Discard, ErrOut: c.log})
	c.mirror, m.hangups = m, c.hangups
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	c.end = func() {
		c.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the mirror ended: %v\n%s", err, c.log)
		}
	}
}

func (c *configured) create(namespace, name string) {
	c.t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, o := range []kubesim.Object{&corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}} {
		if err := c.sim.Create(o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// write writes the config file.
func (c *configured) write(lines string) {
	c.t.Helper()
	text := fmt.Sprintf("db: %s\nserver: %s\n%s\n", c.db, c.sim.URL(), lines)
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// reload makes the mirror read the file with these lines, and waits until the log reports
// the result.
func (c *configured) reload(lines, says string) {
	c.t.Helper()
	c.write(lines)
	c.hangup(says)
}

func (c *configured) hangup(says string) {
	c.t.Helper()
	before := len(c.log.String())
	select {
	case c.hangups <- syscall.SIGHUP:
	case <-time.After(time.Minute):
		c.t.Fatal("nobody listens")
	}
	eventually(c.t, func() error {
		if said := c.log.String()[before:]; !strings.Contains(said, says) {
			return fmt.Errorf("no %q in %s", says, said)
		}
		return nil
	})
}

// keeps waits until exactly these sources are live, and the file has these config maps.
func (c *configured) keeps(sources []string, configMaps string) {
	c.t.Helper()
	eventually(c.t, func() error {
		var names []string
		for _, src := range c.mirror.stats.all() {
			if !strings.HasPrefix(src.inf.State().String(), "live") {
				return fmt.Errorf("%s: %s", src.name, src.inf.State())
			}
			names = append(names, src.name)
		}
		if slices.Sort(names); !slices.Equal(names, sources) {
			return fmt.Errorf("it mirrors %q, not %q", names, sources)
		}
		return nil
	})
	eventually(c.t, func() error {
		if got := shown(c.t, "get", "configmaps", "-A", "-o", "name", "--db", c.db); got != configMaps {
			return fmt.Errorf("config maps %q, not %q", got, configMaps)
		}
		return nil
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, is func() error) {
	t.Helper()
	// between two looks: the mirror, a process of its own, gives no signal
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // between two looks, see above
		err := is()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestReload: after a SIGHUP the mirror keeps the types that the config file now asks
// for. A file that cannot be applied is refused, and nothing changes.
func TestReload(t *testing.T) {
	const all = "all-namespaces: true\n"
	c := newConfigured(t, all+"types: [configmaps]")
	onlyMaps, both := []string{"configmaps/v1"}, []string{"configmaps/v1", "secrets/v1"}
	c.keeps(onlyMaps, "configmap/b configmap/a")
	c.hangup("asks for the same as before")

	c.reload(all+"types: [configmaps, secrets]", "secrets/v1: live")
	c.keeps(both, "configmap/b configmap/a")

	// A removed type stays in the file as it was.
	c.reload(all+"types: [secrets]", "configmaps/v1: no longer mirrored; its objects stay in the file")
	c.create("web", "later")
	c.keeps([]string{"secrets/v1"}, "configmap/b configmap/a")
	eventually(t, func() error {
		if got := shown(t, "get", "secrets", "-A", "-o", "name", "--db", c.db); !strings.Contains(got, "secret/later") {
			return fmt.Errorf("secrets: %q", got)
		}
		return nil
	})
	c.reload(all+"types: [secrets, cm]", "configmaps/v1: live")
	c.keeps(both, "configmap/b configmap/a configmap/later")

	const stays = "reload: the old settings go on: "
	c.reload(all+"types: [secrets", stays+c.config+": line ")
	c.reload(all+"types: [secrets]\ntyps: [pods]", stays+c.config+":5: typs: there is no such key")
	c.reload(all+"types: [secrets]\nall-namespaces: true", stays+c.config+":5: all-namespaces is there twice")
	c.reload(all+"types: [secrets]\nwindow: fast", stays+c.config+":5: window: ")
	c.reload(all+"types: [secrets]\nwindow: 3s\nkeyset: k.json",
		stays+`only a new start can change this: keyset is "", not k.json; window is 0s, not 3s`)
	c.reload(all+"types: [secrets]\nselector: a b", stays+"the selector cannot be parsed")
	c.reload(all+"types: []", stays+"there are no types")
	c.reload(all+"types: [secrets, nonsense]", stays+`the server has no resource type "nonsense"`)
	if err := os.Remove(c.config); err != nil {
		t.Fatal(err)
	}
	c.hangup(stays + "open ")
	c.keeps(both, "configmap/b configmap/a configmap/later")

	// Other namespaces and labels are other sources.
	c.reload("namespace: other\ntypes: [configmaps]", "configmaps/v1 -n other: live")
	c.keeps([]string{"configmaps/v1 -n other"}, "configmap/b configmap/a configmap/later")
	c.end()
}

// TestReloadOfSourceInUse: if one of the new sources cannot be started, those that ran
// before run on, and none of the others.
func TestReloadOfSourceInUse(t *testing.T) {
	const all = "all-namespaces: true\n"
	c := newConfigured(t, all+"types: [secrets, configmaps]")
	c.keeps([]string{"configmaps/v1", "secrets/v1"}, "configmap/b configmap/a")
	taken := c.mirror.stats.all()[0].inf.Store().Source()
	c.reload(all+"types: [configmaps]", "secrets/v1: no longer mirrored")
	claim, err := c.mirror.stats.db().Claim(boltstore.Claim{Source: taken, Example: &corev1.Secret{}})
	if err != nil {
		t.Fatal(err)
	}
	c.reload(all+"types: [pods, secrets]", "reload: the old settings go on: secrets/v1: already claimed")
	c.create("web", "later")
	c.keeps([]string{"configmaps/v1"}, "configmap/b configmap/a configmap/later")
	claim.Release()
	c.reload(all+"types: [pods, secrets]", "secrets/v1: live")
	c.keeps([]string{"pods/v1", "secrets/v1"}, "configmap/b configmap/a configmap/later")
	c.end()
}

// TestReloadOffline: while the server is away, an unknown type does not hold up later
// reloads. A type that the server refuses does not end the others.
func TestReloadOffline(t *testing.T) {
	const all = "all-namespaces: true\n"
	c := newConfigured(t, all+"types: [configmaps]")
	onlyMaps := []string{"configmaps/v1"}
	c.keeps(onlyMaps, "configmap/b configmap/a")
	if err := c.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	c.reload(all+"types: [nonsense]", "nonsense: the server cannot be asked about this type; trying again")
	c.reload(all+"types: [configmaps]", "asks for configmaps")
	if err := c.sim.RefuseConnections(false); err != nil {
		t.Fatal(err)
	}
	c.sim.FailNext(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/secrets") }, 1<<30,
		kubesim.Answer(apierrors.NewForbidden(corev1.Resource("secrets"), "", io.EOF)))
	c.reload(all+"types: [configmaps, secrets]", "secrets/v1 cannot be mirrored: ")
	c.create("web", "later")
	eventually(t, func() error {
		if got := shown(t, "get", "configmaps", "-A", "-o", "name", "--db", c.db); !strings.Contains(got, "later") {
			return fmt.Errorf("config maps %q", got)
		}
		return nil
	})
	c.end()
}

// TestReloadsBeforeFirstAnswer: a mirror that has not reached the server yet was given wrong
// types twice. Once the server answers, it refuses both, and the first settings go on.
func TestReloadsBeforeFirstAnswer(t *testing.T) {
	const all = "all-namespaces: true\n"
	c := prepared(t)
	if err := c.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	const waits = ": the server cannot be asked about this type; trying again"
	c.start(all + "types: [configmaps]")
	eventually(t, func() error {
		if !strings.Contains(c.log.String(), "configmaps"+waits) {
			return fmt.Errorf("%s", c.log)
		}
		return nil
	})
	c.reload(all+"types: [nonsense]", "nonsense"+waits)
	c.reload(all+"types: [rubbish]", "rubbish"+waits)
	if err := c.sim.RefuseConnections(false); err != nil {
		t.Fatal(err)
	}
	c.keeps([]string{"configmaps/v1"}, "configmap/b configmap/a")
	for _, typ := range []string{"nonsense", "rubbish"} {
		if says := fmt.Sprintf("reload: the old settings go on: the server has no resource type %q",
			typ); !strings.Contains(c.log.String(), says) {
			t.Errorf("no %q in %s", says, c.log)
		}
	}
	c.end()
}

// TestCommandLineWins: flags and types of the command line win over the config file, even
// when it is read again.
func TestCommandLineWins(t *testing.T) {
	c := newConfigured(t, "namespace: other\nall-namespaces: true\ntypes: [secrets]\nas-group: [x, y]", "configmaps",
		"-n", "web", "--as", "u", "--as-group", "z")
	c.keeps([]string{"configmaps/v1 -n web"}, "configmap/a")
	if got := *c.mirror.flags.ImpersonateGroup; !slices.Equal(got, []string{"z"}) {
		t.Errorf("groups %q", got)
	}
	c.reload("namespace: third\nall-namespaces: true\ntypes: [nonsense]", "asks for the same as before")
	c.end()
}

// TestHangupWithoutConfig: without a config file there is nothing to reload, and the mirror
// goes on.
func TestHangupWithoutConfig(t *testing.T) {
	c := newConfigured(t, "", "configmaps", "-n", "web")
	c.hangup("SIGHUP: there is nothing to reload, since there is no --config")
	c.keeps([]string{"configmaps/v1 -n web"}, "configmap/a")
	c.end()
}

// TestAuditNow: --audit-now has a mirror that goes on from its file compare all objects once.
func TestAuditNow(t *testing.T) {
	c := newConfigured(t, "", "configmaps", "-A")
	eventually(t, func() error {
		if !strings.Contains(c.log.String(), ": live") {
			return errors.New(c.log.String())
		}
		return nil
	})
	c.end()
	c.start("", "configmaps", "-A", "--metered", "--audit-now")
	eventually(t, func() error {
		for _, src := range c.mirror.stats.all() {
			if src.inf.State().Relists[reflector.ReasonAudit] == 1 {
				return nil
			}
		}
		return errors.New(c.log.String())
	})
	c.end()
}
