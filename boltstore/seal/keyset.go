package seal

import (
	"bytes"
	"crypto/fips140"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// ErrKeyset is wrapped by every error about a keyset: it is missing, malformed, or not
// the one that encrypted the file. The error names the keyset and says what to do.
var ErrKeyset = errors.New("keyset")

// Keyset says where a user's Tink keyset comes from. Its keys must be for AEAD. It is
// read when a file is opened, and not kept longer than that.
type Keyset struct {
	name string
	read func() (*keyset.Handle, error)
}

// File is a cleartext keyset in JSON, as tinkey writes it. The caller must protect the
// file.
func File(path string) *Keyset {
	return &Keyset{"the keyset file " + path, func() (*keyset.Handle, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%w; is the path right?", err)
		}
		return parse(b)
	}}
}

// Env is a cleartext keyset in JSON in an environment variable.
func Env(name string) *Keyset {
	return &Keyset{"the keyset in $" + name, func() (*keyset.Handle, error) {
		v, ok := os.LookupEnv(name)
		if !ok || v == "" {
			return nil, errors.New("the variable is not set; put the keyset's JSON into it")
		}
		return parse([]byte(v))
	}}
}

// Func is a keyset from anywhere else, such as one that a KMS has encrypted. Errors
// contain the name. read is called once each time a file is opened, without locks held.
func Func(name string, read func() (*keyset.Handle, error)) *Keyset {
	return &Keyset{"the keyset " + name, read}
}

// checkMode returns an error if the program may only use what FIPS 140 allows. AES-GCM with
// nonces of Tink's own is not.
func checkMode() error {
	if fips140.Enforced() {
		return errors.New("GODEBUG=fips140=only does not allow the encryption of files; " +
			"run with fips140=on, or without a keyset")
	}
	return nil
}

// String returns the keyset's name in errors.
func (k *Keyset) String() string { return k.name }

func parse(b []byte) (*keyset.Handle, error) {
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(b)))
	if err != nil {
		// Tink's own error could quote the content.
		return nil, errors.New("it is not a cleartext Tink keyset in JSON; make one with `kubewake keys generate`, " +
			"or with tinkey")
	}
	return h, nil
}

// Master is a keyset that has been read. It seals a file's data key and nothing else.
type Master struct {
	name    string
	primary uint32
	aead    tink.AEAD
}

// Read reads the keyset.
func (k *Keyset) Read() (*Master, error) {
	fail := func(err error) (*Master, error) { return nil, fmt.Errorf("%w: %s: %w", ErrKeyset, k.name, err) }
	if err := checkMode(); err != nil {
		return fail(err)
	}
	h, err := k.read()
	if err != nil {
		return fail(err)
	}
	if h == nil {
		return fail(errors.New("there is none"))
	}
	p, err := h.Primary()
	if err != nil {
		return fail(fmt.Errorf("it has no primary key: %w", err))
	}
	a, err := aead.New(h)
	if err != nil {
		return fail(errors.New("its keys are not for AEAD; make one with `kubewake keys generate`"))
	}
	return &Master{name: k.name, primary: p.KeyID(), aead: a}, nil
}

// Generate writes a new keyset with one key to path, readable only by its owner. It
// fails if there is a file already.
func Generate(path string) error {
	if err := checkMode(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrKeyset, path, err)
	}
	h, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return err
	}
	b, err := cleartext(h)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%w: %s is there already and is not overwritten: files that it encrypts would be lost",
				ErrKeyset, path)
		}
		return fmt.Errorf("%w: %w", ErrKeyset, err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrKeyset, err), os.Remove(path))
	}
	return syncDir(filepath.Dir(path))
}

// rotateWait is how long Rotate waits for another rotation of the same keyset.
const rotateWait = 10 * time.Second

// Rotate adds a key to the keyset in the file at path and makes it the primary key. The
// other keys stay, for files that they have sealed. A crash leaves the old or the new
// keyset. The file keeps its owner and mode, and a symlink stays a symlink.
func Rotate(path string) error {
	if err := checkMode(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrKeyset, path, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("%w: %w; is the path right?", ErrKeyset, err)
	}
	if st, err := os.Stat(real); err == nil && !st.Mode().IsRegular() { // to open a FIFO would wait
		return fmt.Errorf("%w: %s is not a regular file; give the file that has the keyset", ErrKeyset, path)
	}
	// If two rotations ran at once, one would lose the other's key, by which a file may
	// already be sealed.
	release, err := osfile.Files{}.WaitLock(real, rotateWait, false)
	switch {
	case err == nil:
		defer release()
		removeLeftovers(real)
	case errors.Is(err, faults.ErrLocked):
		return fmt.Errorf("%w: %s: another program changes it; try again", ErrKeyset, path)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: %w", ErrKeyset, err)
	} // otherwise the file system has no locks
	return rotate(path, real)
}

// removeLeftovers removes the keysets that killed rotations were writing. The caller has
// the keyset's lock.
func removeLeftovers(real string) {
	dir, prefix := filepath.Dir(real), tempPrefix(real)
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if random, ok := strings.CutPrefix(e.Name(), prefix); ok && random != "" &&
			strings.Trim(random, "0123456789") == "" && e.Type().IsRegular() {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// tempPrefix begins the names of keysets that are being written for real.
func tempPrefix(real string) string { return "." + filepath.Base(real) + ".new-" }

// rotate is Rotate for the file at real, which path leads to.
func rotate(path, real string) error {
	st, err := os.Stat(real)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeyset, err)
	}
	h, err := File(real).read()
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrKeyset, path, err)
	}
	m := keyset.NewManagerFromHandle(h)
	id, err := m.Add(aead.AES256GCMKeyTemplate())
	if err == nil {
		err = m.SetPrimary(id)
	}
	if err == nil {
		h, err = m.Handle()
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrKeyset, path, err)
	}
	b, err := cleartext(h)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(real), tempPrefix(real)+"*")
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w; rotate it where its folder can be written, and copy it from there", err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeyset, osfile.SayLong(err))
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err := errors.Join(err, osfile.Like(f.Name(), st), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrKeyset, err)
	}
	if err := os.Rename(f.Name(), real); err != nil {
		return fmt.Errorf("%w: %w", ErrKeyset, osfile.SayBusy(err))
	}
	return syncDir(filepath.Dir(real))
}

func cleartext(h *keyset.Handle) ([]byte, error) {
	var buf bytes.Buffer
	err := insecurecleartextkeyset.Write(h, keyset.NewJSONWriter(&buf))
	return append(buf.Bytes(), '\n'), err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync() // not every system can
	return nil
}
