package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"unicode/utf8"
)

// CredentialsFile is the name of the file of keys in the state directory of fairlead dev.
const CredentialsFile = "credentials.json"

// Credentials are the keys that fairlead dev made for the people of its machine.
type Credentials struct {
	Addr string          `json:"addr"` // the API's base URL, on loopback
	Keys []CredentialKey `json:"keys"`
}

// CredentialKey is one key with its secret.
type CredentialKey struct {
	Name   string   `json:"name"`
	Tenant string   `json:"tenant"` // empty for the platform's
	Scopes []string `json:"scopes"`
	Secret string   `json:"secret"`
}

// May reports whether the key has scope.
func (k CredentialKey) May(scope string) bool { return slices.Contains(k.Scopes, scope) }

// ErrNoCredentials is returned when the state directory has no credentials file: no fairlead dev ran there.
var ErrNoCredentials = errors.New("no dev credentials")

// ReadCredentials returns the keys in the state directory dir. It returns [ErrNoCredentials] when there are none, and refuses a file that
// others may read, or whose address is not loopback: a folder that came from elsewhere must not send requests there.
func ReadCredentials(dir string) (*Credentials, error) {
	path := filepath.Join(dir, CredentialsFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoCredentials
	}
	if err != nil {
		return nil, fmt.Errorf("reading the dev credentials: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s may be read by others (mode %04o): run chmod 600 on it, or make new keys", path, mode)
	}
	content, err := readBounded(path, fileBytesMax)
	if err != nil {
		return nil, fmt.Errorf("reading the dev credentials: %w", err)
	}
	var c Credentials
	if !utf8.Valid(content) {
		return nil, fmt.Errorf("%s is not UTF-8", path)
	}
	if err := json.Unmarshal(content, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	u, problem := ParseURL(c.Addr)
	if problem != "" {
		return nil, fmt.Errorf("%s: addr %.100q %s", path, c.Addr, problem)
	}
	if !Loopback(u.Hostname()) {
		return nil, fmt.Errorf("%s: addr %.100q is not loopback: give --addr and --token for a server elsewhere", path, c.Addr)
	}
	return &c, nil
}
