package identity

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// Role is what an agent does in its cluster.
type Role string

// The roles.
const (
	RoleControl Role = "control"
	RoleCell    Role = "cell"
	RoleGateway Role = "gateway"
)

// Roles lists the roles.
func Roles() []Role { return []Role{RoleControl, RoleCell, RoleGateway} }

// ParseRole returns the role that s names. It returns a *[cell.FieldError] naming field when there is none.
func ParseRole(field, s string) (Role, error) {
	for _, r := range Roles() {
		if s == string(r) {
			return r, nil
		}
	}
	return "", &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %.40q", s), Remedy: "use control, cell or gateway"}
}

// Identity is what a certificate says about its agent.
type Identity struct {
	ClusterID string
	Role      Role
	Name      string
	Cell      cell.ID // of an agent of a cell; empty for the other roles
}

const (
	scheme            = "fairlead"
	clusterIDBytesMax = 63 // it stands in a URI where a host would
	clusterIDBytes    = 8
)

// NewClusterID returns a fresh id of 64 random bits: enough that two clusters never have the same, and short enough to read out.
func NewClusterID() string {
	var b [clusterIDBytes]byte
	_, _ = rand.Read(b[:]) // ends the process rather than fail
	return "fl-" + hex.EncodeToString(b[:])
}

// CheckClusterID returns a *[cell.FieldError] naming field unless s is a cluster's id: 1 to 63 lower-case letters, digits and hyphens, with a
// letter or digit first.
func CheckClusterID(field, s string) error {
	const remedy = "use 1 to 63 lower-case letters, digits and hyphens with a letter or digit first"
	if s == "" || len(s) > clusterIDBytesMax {
		return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has %d bytes, outside 1 to %d", len(s), clusterIDBytesMax), Remedy: remedy}
	}
	for i, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && (r != '-' || i == 0) {
			return &cell.FieldError{Field: field, Problem: fmt.Sprintf("%.40q has %q at byte %d", s, r, i), Remedy: remedy}
		}
	}
	return nil
}

// Check returns a *[cell.FieldError] naming the part of the identity that is not as it must be.
func (id Identity) Check() error {
	if err := CheckClusterID("cluster", id.ClusterID); err != nil {
		return err
	}
	if _, err := ParseRole("role", string(id.Role)); err != nil {
		return err
	}
	if err := cell.CheckID("name", id.Name); err != nil {
		return err
	}
	if id.Role == RoleCell {
		_, err := cell.ParseCellID("cell", string(id.Cell))
		return err
	}
	if id.Cell != "" {
		return &cell.FieldError{
			Field: "cell", Problem: fmt.Sprintf("is %.40q for an agent of the role %s", id.Cell, id.Role), Remedy: "name a cell for the role cell only",
		}
	}
	return nil
}

// URI is the identity as it stands in a certificate.
func (id Identity) URI() *url.URL {
	path := "/" + string(id.Role) + "/" + id.Name
	if id.Cell != "" {
		path += "/" + string(id.Cell)
	}
	return &url.URL{Scheme: scheme, Host: id.ClusterID, Path: path}
}

func (id Identity) String() string { return id.URI().String() }

// Of returns the identity that a certificate holds, whose signature is for the caller to have checked. It returns a *[MismatchError] when there
// is none, or more than one.
func Of(cert *x509.Certificate) (Identity, error) {
	if len(cert.URIs) != 1 {
		return Identity{}, &MismatchError{Field: "identity", Got: fmt.Sprintf("%d URIs", len(cert.URIs)), Want: "one URI fairlead://CLUSTER/ROLE/NAME"}
	}
	id, err := parseURI(cert.URIs[0])
	if err != nil {
		return Identity{}, &MismatchError{Field: "identity", Got: fmt.Sprintf("%.200q", cert.URIs[0].String()), Want: "fairlead://CLUSTER/ROLE/NAME, with /CELL for a cell's"}
	}
	return id, nil
}

// parseURI is exact: one identity has one text.
func parseURI(u *url.URL) (Identity, error) {
	parts := strings.Split(u.Path, "/")
	if len(parts) < 3 || len(parts) > 4 {
		return Identity{}, &cell.FieldError{Field: "identity", Problem: "has not the parts of an agent's"}
	}
	id := Identity{ClusterID: u.Host, Role: Role(parts[1]), Name: parts[2]}
	if len(parts) == 4 {
		id.Cell = cell.ID(parts[3])
	}
	if err := id.Check(); err != nil {
		return Identity{}, err
	}
	if u.String() != id.String() {
		return Identity{}, &cell.FieldError{Field: "identity", Problem: "has more than the parts of an agent's"}
	}
	return id, nil
}

// Expect says whose certificate is good. What is empty may be anything; the cluster is always the own one.
type Expect struct {
	Role Role
	Cell cell.ID
	Name string
}

// check returns a *[MismatchError] naming the first part of id that is not as expected.
func (e Expect) check(id Identity) error {
	switch {
	case e.Role != "" && id.Role != e.Role:
		return &MismatchError{Field: "role", Got: string(id.Role), Want: string(e.Role)}
	case e.Cell != "" && id.Cell != e.Cell:
		return &MismatchError{Field: "cell", Got: string(id.Cell), Want: string(e.Cell)}
	case e.Name != "" && id.Name != e.Name:
		return &MismatchError{Field: "name", Got: id.Name, Want: e.Name}
	}
	return nil
}

// MismatchError is returned when a certificate is in order and yet not that of whom it has to be of. The handshake ends with it.
type MismatchError struct {
	Field     string // cluster, role, cell, name or identity
	Got, Want string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the other side's certificate has the %s %s, not %s", e.Field, e.Got, e.Want)
}
