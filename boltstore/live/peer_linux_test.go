package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	strangerEnv = "KUBEWAKE_TEST_STRANGER" // a socket to connect to
	impostorEnv = "KUBEWAKE_TEST_IMPOSTOR" // a socket to serve
	stranger    = 54321                    // a user that nobody is
)

// TestMain also runs the part of another user.
func TestMain(m *testing.M) {
	if sock := os.Getenv(strangerEnv); sock != "" {
		c, err := net.Dial("unix", sock)
		if err != nil {
			fmt.Print("no connection: ", err)
			os.Exit(0)
		}
		_, err = io.WriteString(c, "GET /kubewake/status HTTP/1.1\r\nHost: kubewake\r\nConnection: close\r\n\r\n")
		b, rerr := io.ReadAll(c)
		fmt.Printf("%d bytes: %v: %s", len(b), errors.Join(err, rerr), b)
		os.Exit(0)
	}
	if sock := os.Getenv(impostorEnv); sock != "" {
		l, err := net.Listen("unix", sock)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("listening")
		srv := &http.Server{ReadHeaderTimeout: time.Minute, Protocols: &http.Protocols{}}
		srv.Protocols.SetUnencryptedHTTP2(true)
		srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
		fmt.Println(srv.Serve(l))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// as returns a command that runs this program as another user.
func as(t *testing.T, uid uint32, env string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user") // the test needs a second user
	}
	bin := filepath.Join(openDir(t), "live.test")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = []string{env, "GORACE=atexit_sleep_ms=0"}
	cmd.Dir = filepath.Dir(bin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// openDir returns a folder that all users can enter and write.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "live-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestStrangerIsRefused: another user is refused by the socket's mode or, if that lets
// it in, by its user id. The owner and root are served.
func TestStrangerIsRefused(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 3, 10)
	start(t, db, defaultLimits)
	sock := path + ".sock"
	ask := func(uid uint32) string {
		t.Helper()
		out, err := as(t, uid, strangerEnv+"="+sock).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := ask(stranger); !strings.HasPrefix(got, "no connection: ") {
		t.Errorf("let in: %s", got)
	}
	if err := errors.Join(os.Chmod(sock, 0o666), os.Chmod(filepath.Dir(path), 0o755)); err != nil {
		t.Fatal(err)
	}
	if got := ask(stranger); !strings.HasPrefix(got, "0 bytes: ") {
		t.Errorf("answered: %s", got)
	}
	if got := ask(0); !strings.Contains(got, "200 OK") || !strings.Contains(got, "secrets") {
		t.Errorf("root is told: %s", got)
	}
}

// TestListen: a socket that Listen has made lets in only this user and root.
func TestListen(t *testing.T) {
	sock := filepath.Join(openDir(t), "s")
	if err := os.WriteFile(sock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(sock); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatalf("over a file: %v", err)
	}
	if err := os.Remove(sock); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(sock)
	if err != nil {
		t.Fatal(err)
	}
	// a stranger has left
	srv := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })}
	// until it is closed
	go func() { _ = srv.Serve(l) }()
	if st, err := os.Stat(sock); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if err := os.Chmod(sock, 0o666); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]string{stranger: "0 bytes: ", 0: "served"} {
		if out, err := as(t, uid, strangerEnv+"="+sock).CombinedOutput(); err != nil ||
			!strings.Contains(string(out), want) {
			t.Errorf("user %d: %v %s", uid, err, out)
		}
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(sock); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// TestImpostor: the client does not trust a process that is neither the file owner's nor
// root's.
func TestImpostor(t *testing.T) {
	for _, c := range []struct {
		uid  uint32 // of who serves
		file int    // of who has the file
		want string // "" is none
	}{
		{stranger, 0, "is not of the file's owner"}, {stranger, 12345, "is not of the file's owner"},
		{stranger, stranger, ""}, {0, stranger, ""},
	} {
		path := filepath.Join(openDir(t), "f.db")
		if err := os.WriteFile(path, []byte("any"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := as(t, c.uid, impostorEnv+"="+path+".sock")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		t.Cleanup(stop)
		if line := make([]byte, 9); true {
			if _, err := io.ReadFull(out, line); err != nil || string(line) != "listening" {
				t.Fatalf("%q %v", line, err)
			}
		}
		if err := os.Chown(path, c.file, -1); err != nil {
			t.Fatal(err)
		}
		client, err := Dial(path)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err = client.Status(ctx)
			cancel()
			_ = client.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("served by %d, file of %d: %v", c.uid, c.file, err)
		}
		stop()
	}
}
