package client_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// TestAuthorityAndCell reaches a server whose certificate only its own authority vouches for, and tells it which cell is meant.
func TestAuthorityAndCell(t *testing.T) {
	headers := make(chan http.Header, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header.Clone()
		w.Header().Set("Content-Type", "application/proto")
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of callers that do not trust it
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	dir := t.TempDir()
	file := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func(cfg client.Config) error {
		cfg.Addr, cfg.Token = s.URL, "secret"
		conn, err := client.Dial(cfg)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = fairleadv1connect.NewStatusServiceClient(conn.HTTP, conn.URL, conn.Options...).GetStatus(t.Context(), &fairleadv1.GetStatusRequest{})
		return err
	}
	for name, cfg := range map[string]client.Config{
		"a pool": {RootCAs: pool}, "a file": {CAFile: file}, "both": {RootCAs: pool, CAFile: file}, "with a cell": {CAFile: file, Cell: "cell-7"},
	} {
		if err := call(cfg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if header := <-headers; header.Get("Fairlead-Cell") != cfg.Cell || header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s: the cell or the token is missing", name)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg   client.Config
		field string
	}{
		"no file":          {client.Config{CAFile: filepath.Join(dir, "none")}, "ca_file"},
		"no certificate":   {client.Config{CAFile: filepath.Join(dir, "empty")}, "ca_file"},
		"no name":          {client.Config{RootCAs: pool, Cell: "a\r\nb"}, "cell"},
		"nobody vouches":   {client.Config{RootCAs: x509.NewCertPool()}, ""},
		"not the system's": {client.Config{}, ""},
	} {
		err := call(c.cfg)
		var e *client.Error
		if err == nil || c.field != "" && (!errors.As(err, &e) || e.Field != c.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
