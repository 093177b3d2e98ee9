package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
)

// readCredentials returns the keys that an earlier start made in dir, and none when there was none.
func readCredentials(dir string) (config.Credentials, error) {
	c, err := config.ReadCredentials(dir)
	switch {
	case errors.Is(err, config.ErrNoCredentials):
		return config.Credentials{}, nil
	case err != nil:
		return config.Credentials{}, err
	default:
		return *c, nil
	}
}

// writeCredentials replaces the file in one step, readable by its owner only.
func writeCredentials(dir string, c config.Credentials) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, config.CredentialsFile)
	next := path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing the dev credentials: %w", err)
	}
	if err := os.WriteFile(next, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the dev credentials: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("writing the dev credentials: %w", err)
	}
	return nil
}
