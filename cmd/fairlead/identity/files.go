package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The files of an agent's directory. All but the certificates are secrets: their mode is 0600.
const (
	CAFile     = "ca.crt"      // the authority's certificate, or a bundle while one follows another
	CAKeyFile  = "ca.key"      // its key; only where an agent may sign
	CertFile   = "agent.crt"   // the agent's certificate
	KeyFile    = "agent.key"   // its key
	GossipFile = "gossip.keys" // keys of gossip in base64, one a line, the first of which encrypts
)

const (
	dirMode    = 0o700
	secretMode = 0o600
	publicMode = 0o644
	// fileBytesMax bounds a file that is read: a bundle of certificates has a few KiB.
	fileBytesMax = 1 << 20
)

// FileError is returned when a file of an agent's directory cannot be used.
type FileError struct {
	Path    string
	Problem string
	Remedy  string // what to do; may be empty
	Err     error  // what it was made from; may be nil
}

func (e *FileError) Error() string {
	s := e.Path + " " + e.Problem
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	return s
}

// Unwrap returns what the error was made from.
func (e *FileError) Unwrap() error { return e.Err }

// Exists reports whether dir holds an agent's certificate.
func Exists(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, CertFile))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, &FileError{Path: filepath.Join(dir, CertFile), Problem: "cannot be read", Err: err}
	}
}

func readFile(path string) ([]byte, error) { return read(path, false) }

// ReadSecret returns what is in a file that only its owner may read. It returns a *[FileError] when others may.
func ReadSecret(path string) ([]byte, error) { return read(path, true) }

func read(path string, secret bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &FileError{Path: path, Problem: "cannot be read: " + reason(err), Err: err}
	}
	defer f.Close() //nolint:errcheck // only read
	if secret {
		if err := checkMode(path, f); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, &FileError{Path: path, Problem: "cannot be read: " + reason(err), Err: err}
	}
	if len(text) > fileBytesMax {
		return nil, &FileError{Path: path, Problem: fmt.Sprintf("has more than %d bytes", fileBytesMax)}
	}
	return text, nil
}

// reason is an error of a file without the path, which is said already.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// checkMode looks at the open file, so that what was checked is what is read.
func checkMode(path string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return &FileError{Path: path, Problem: "cannot be looked at: " + reason(err), Err: err}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return &FileError{
			Path: path, Problem: fmt.Sprintf("is a secret that others may read (mode %04o)", mode),
			Remedy: "run chmod 600 on it, and replace what is in it if somebody may have seen it",
		}
	}
	return nil
}

// WriteSecret puts content into a file that only its owner may read, in one step: whoever reads it finds all of it or what was there before.
func WriteSecret(path string, content []byte) error { return write(path, content, secretMode) }

// WritePublic is [WriteSecret] for what everybody may read.
func WritePublic(path string, content []byte) error { return write(path, content, publicMode) }

func write(path string, content []byte, mode fs.FileMode) error {
	fail := func(err error) error {
		return &FileError{Path: path, Problem: "cannot be written: " + reason(err), Err: err}
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fail(err)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone when all went well
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return fail(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fail(err)
	}
	return syncDir(dir)
}

// syncDir makes the names in dir durable, where the system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return &FileError{Path: dir, Problem: "cannot be read: " + reason(err), Err: err}
	}
	defer d.Close() //nolint:errcheck // only read
	if err := d.Sync(); err != nil && runtime.GOOS != "windows" && !errors.Is(err, errors.ErrUnsupported) {
		return &FileError{Path: dir, Problem: "cannot be made durable: " + reason(err), Err: err}
	}
	return nil
}

// The bounds of gossip's keys.
const (
	gossipKeyBytes = 32
	gossipKeysMax  = 8 // one encrypts, and the others are on their way in or out
)

// NewGossipKey returns a fresh key for AES-256.
func NewGossipKey() []byte {
	b := make([]byte, gossipKeyBytes)
	_, _ = rand.Read(b) // ends the process rather than fail
	return b
}

// FormatGossipKeys returns the keys as they stand in [GossipFile].
func FormatGossipKeys(keys [][]byte) []byte {
	var b bytes.Buffer
	for _, k := range keys {
		b.WriteString(base64.StdEncoding.EncodeToString(k) + "\n")
	}
	return b.Bytes()
}

// ParseGossipKeys is the inverse of [FormatGossipKeys]. Empty lines and those that begin with # are skipped.
func ParseGossipKeys(text []byte) ([][]byte, error) {
	var keys [][]byte
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || !slices.Contains([]int{16, 24, gossipKeyBytes}, len(key)) {
			return nil, fmt.Errorf("has no key of 16, 24 or 32 bytes in base64 in line %d", n+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > gossipKeysMax {
		return nil, fmt.Errorf("has %d keys, outside 1 to %d", len(keys), gossipKeysMax)
	}
	return keys, nil
}
