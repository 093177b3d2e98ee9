package cell

import (
	"fmt"
	"slices"
	"strings"
)

// Permission is one thing that a key may allow. The numbers are part of control's log format.
type Permission uint8

// The permissions, which the command line and the API call scopes of a key.
const (
	PermissionSubmit  Permission = 1 // submit, cancel, retry
	PermissionRead    Permission = 2 // get, list, wait, explain
	PermissionWork    Permission = 3 // lease and report
	PermissionOperate Permission = 4 // see the cell and run the cluster
	PermissionAdmin   Permission = 5 // manage tenants and keys
)

// Permissions lists every permission.
func Permissions() []Permission {
	return []Permission{PermissionSubmit, PermissionRead, PermissionWork, PermissionOperate, PermissionAdmin}
}

func (p Permission) String() string {
	switch p {
	case PermissionSubmit:
		return "submit"
	case PermissionRead:
		return "read"
	case PermissionWork:
		return "work"
	case PermissionOperate:
		return "operate"
	case PermissionAdmin:
		return "admin"
	default:
		return fmt.Sprintf("permission(%d)", uint8(p))
	}
}

// OfPlatformOnly reports whether only a key of the platform, never a tenant's, may hold p.
func (p Permission) OfPlatformOnly() bool { return p == PermissionOperate || p == PermissionAdmin }

// ParsePermission returns the permission named s. It returns a *[FieldError] for any other word.
func ParsePermission(field, s string) (Permission, error) {
	var names []string
	for _, p := range Permissions() {
		if s == p.String() {
			return p, nil
		}
		names = append(names, p.String())
	}
	return 0, &FieldError{
		Field: field, Problem: fmt.Sprintf("%.40q is not a scope", s), Remedy: "use some of " + strings.Join(names, ", "),
	}
}

// Caller is who makes a request, as the door has authenticated them. It is read-only once made.
type Caller struct {
	Key         string       // the key's id, for logs
	Tenant      TenantID     // empty for the platform
	Permissions []Permission // what the key allows
	Operations  []Operation  // what a work key may lease; all when empty
}

// May reports whether the caller's key allows p.
func (c Caller) May(p Permission) bool { return slices.Contains(c.Permissions, p) }

// MayLease reports whether the caller's key allows leasing jobs of op.
func (c Caller) MayLease(op Operation) bool {
	return c.May(PermissionWork) && (len(c.Operations) == 0 || slices.Contains(c.Operations, op))
}
