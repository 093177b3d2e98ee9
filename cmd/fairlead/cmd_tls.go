package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

func (a *app) tlsCommand() *cobra.Command {
	return group("tls", "Make the certificates that agents know each other by",
		`Agents of a cluster speak TLS 1.3 with each other, and each shows a certificate that says its cluster, role, name and cell. These commands
need no server. For a whole cluster at once see fairlead cluster prepare, and for one more agent without the authority's key
fairlead cluster token.`,
		"  fairlead tls ca --dir ./pki\n  fairlead tls cert gateway-2 --role gateway --host gateway-2.example.com --ca-dir ./pki --dir ./gateway-2",
		a.tlsCACommand(), a.tlsCertCommand())
}

func (a *app) tlsCACommand() *cobra.Command {
	var dir, cluster string
	cmd := &cobra.Command{
		Use: "ca --dir DIR", Short: "Make a cluster's certificate authority",
		Long: `Ca makes ca.crt and ca.key, for ten years, and the cluster's id. Whoever has ca.key decides who is an agent: keep it where only control
agents and operators can read it. An authority that is there is shown and stays as it is.`,
		Example: "  fairlead tls ca --dir ./pki\n  fairlead tls ca --dir ./pki --cluster-id fl-production -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return missingFlag("dir", "name the directory that it is to be in")
			}
			if cluster != "" {
				if err := identity.CheckClusterID("--cluster-id", cluster); err != nil {
					return err
				}
			}
			p, err := a.offlinePrinter(cmd)
			if err != nil {
				return err
			}
			ca, made, err := makeCA(dir, cluster, a.now())
			if err != nil {
				return err
			}
			if made {
				a.next("fairlead tls cert control-1 --role control --ca-dir %s --dir ./control-1", shellWord(dir))
			} else {
				a.sayf("The authority was there already, and stays as it is.")
			}
			return printCA(p, dir, ca)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`directory` for ca.crt and ca.key; required")
	cmd.Flags().StringVar(&cluster, "cluster-id", "", "`id` of the cluster: lower-case letters, digits and hyphens; made when not given")
	completeNothing(cmd, "cluster-id")
	must(cmd.MarkFlagDirname("dir"))
	return cmd
}

// offlinePrinter returns where the answer of a command goes that asks no server: the rest of the configuration is not its business.
func (a *app) offlinePrinter(cmd *cobra.Command) (*output.Printer, error) {
	l, err := config.Load(cmd.Flags(), a.configFile)
	if err != nil {
		return nil, err
	}
	return a.printer(l), nil
}

func missingFlag(name, remedy string) error {
	return failure.Usagef(remedy+": --"+name, "--%s is missing", name)
}

// makeCA returns the authority in dir, and whether it was made now.
func makeCA(dir, cluster string, now time.Time) (ca *identity.CA, made bool, err error) {
	ca, err = identity.LoadCA(dir)
	if err == nil {
		if cluster != "" && ca.ClusterID() != cluster {
			return nil, false, failure.Usagef("give another --dir", "%s holds the authority of %s, not %s", dir, ca.ClusterID(), cluster)
		}
		return ca, false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	for _, name := range []string{identity.CAFile, identity.CAKeyFile} {
		if _, half := identity.ReadSecret(filepath.Join(dir, name)); !errors.Is(half, fs.ErrNotExist) {
			return nil, false, failure.Usagef("restore the other half, or give another --dir", "%s holds half of an authority", dir)
		}
	}
	if cluster == "" {
		cluster = identity.NewClusterID()
	}
	if ca, err = identity.CreateCA(cluster, now); err != nil {
		return nil, false, err
	}
	key, err := ca.Key()
	if err != nil {
		return nil, false, err
	}
	if err := identity.WriteSecret(filepath.Join(dir, identity.CAKeyFile), key); err != nil {
		return nil, false, err
	}
	return ca, true, identity.WritePublic(filepath.Join(dir, identity.CAFile), ca.Certificate())
}

func printCA(p *output.Printer, dir string, ca *identity.CA) error {
	print := ca.Fingerprint()
	if !p.Human() {
		return printJSON(p, ca.ClusterID(), struct {
			Cluster     string `json:"cluster"`
			Dir         string `json:"dir"`
			Fingerprint string `json:"fingerprint"`
			ExpireTime  string `json:"expireTime"`
		}{ca.ClusterID(), dir, fingerprintText(print), ca.Expires().UTC().Format(time.RFC3339)})
	}
	return p.Describe([]output.Pair{
		{Key: "Cluster", Value: output.Safe(ca.ClusterID())},
		{Key: "Authority", Value: filepath.Join(dir, identity.CAFile)},
		{Key: "Fingerprint", Value: fingerprintText(print)},
		{Key: "Expires", Value: ca.Expires().UTC().Format(time.RFC3339)},
	})
}

func fingerprintText(f [sha256.Size]byte) string { return "sha256:" + hex.EncodeToString(f[:]) }

// printJSON writes v, which no schema of the API has, in the machine's format that was asked for.
func printJSON(p *output.Printer, name string, v any) error {
	if p.Format == output.FormatName {
		return p.Text(name)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("as JSON: %w", err)
	}
	return p.Document(text)
}

// certFlags say what a certificate is to be.
type certFlags struct {
	role         *enumValue
	cell         string
	hosts        []string
	caDir, dir   string
	lifetime     *durationValue
	renew, signs bool
}

func (a *app) tlsCertCommand() *cobra.Command {
	f := certFlags{role: newEnum("", config.AgentRoles()), lifetime: newDuration(identity.LifetimeDefault)}
	cmd := &cobra.Command{
		Use: "cert NAME --role ROLE --ca-dir DIR --dir DIR", Short: "Make an agent's key and certificate",
		Long: `Cert makes a key and a certificate for one agent, and puts the authority's certificate, and gossip's keys where the authority's directory has
them, beside them: the directory is then what fairlead agent takes as --tls-dir. A certificate that is there stays, unless --renew is
given; a running agent reads the new one at SIGHUP.`,
		Example: `  fairlead tls cert control-1 --role control --ca-dir ./pki --dir ./control-1 --host control-1.example.com --with-ca-key
  fairlead tls cert cell-a-1 --role cell --cell cell-a --ca-dir ./pki --dir ./cell-a-1
  fairlead tls cert gateway-1 --role gateway --ca-dir ./pki --dir ./gateway-1 --host api.example.com --lifetime 90d --renew`,
		Args: arguments(false, "NAME"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args[0]); err != nil {
				return err
			}
			p, err := a.offlinePrinter(cmd)
			if err != nil {
				return err
			}
			if err := f.make(args[0], a.now()); err != nil {
				return err
			}
			s, err := identity.Load(f.dir)
			if err != nil {
				return err
			}
			a.next("fairlead agent --name %s --role %s --tls-dir %s", args[0], f.role.value, shellWord(f.dir))
			return printIdentity(p, f.dir, s)
		},
	}
	f.add(cmd)
	return cmd
}

func (f *certFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(f.role, "role", "what the agent does: "+strings.Join(config.AgentRoles(), ", ")+"; required")
	flags.StringVar(&f.cell, "cell", "", "`cell` that the agent is of; for the role cell, and required there")
	flags.StringArrayVar(&f.hosts, "host", nil, "`name` or address that users reach the agent by, repeated; the agent's name when not given")
	flags.StringVar(&f.caDir, "ca-dir", "", "`directory` with ca.crt and ca.key; required")
	flags.StringVar(&f.dir, "dir", "", "`directory` for the agent's files; required")
	flags.Var(f.lifetime, "lifetime", "how long the certificate is good, at least 1m")
	flags.BoolVar(&f.renew, "renew", false, "replace a key and a certificate that are there")
	flags.BoolVar(&f.signs, "with-ca-key", false, "put the authority's key there too, so that a control agent can sign for who joins")
	completeEnum(cmd, "role", config.AgentRoles())
	completeNothing(cmd, "cell", "host", "lifetime")
	must(cmd.MarkFlagDirname("ca-dir"))
	must(cmd.MarkFlagDirname("dir"))
}

func (f *certFlags) identity(name string) identity.Identity {
	return identity.Identity{Role: identity.Role(f.role.value), Name: name, Cell: cell.ID(f.cell)}
}

// check returns every fault of the flags.
func (f *certFlags) check(name string) error {
	var errs []error
	for flag, value := range map[string]string{"--ca-dir": f.caDir, "--dir": f.dir} {
		if value == "" {
			errs = append(errs, &cell.FieldError{Field: flag, Problem: "is missing", Remedy: "name a directory"})
		}
	}
	errs = append(errs, cell.CheckID("NAME", name))
	if f.role.value == "" {
		errs = append(errs, &cell.FieldError{Field: "--role", Problem: "is missing", Remedy: "use " + strings.Join(config.AgentRoles(), ", ")})
	}
	if f.role.value == string(identity.RoleCell) {
		_, err := cell.ParseCellID("--cell", f.cell)
		errs = append(errs, err)
	} else if f.cell != "" {
		errs = append(errs, &cell.FieldError{Field: "--cell", Problem: "is for agents of the role cell", Remedy: "leave it out, or give --role cell"})
	}
	if f.signs && f.role.value != string(identity.RoleControl) {
		errs = append(errs, &cell.FieldError{Field: "--with-ca-key", Problem: "is for control agents: nobody else signs", Remedy: "leave it out"})
	}
	for _, h := range f.hosts {
		errs = append(errs, identity.CheckHost("--host", h))
	}
	if f.lifetime.d < identity.LifetimeMin || f.lifetime.d > identity.CALifetime {
		errs = append(errs, &cell.FieldError{
			Field: "--lifetime", Problem: fmt.Sprintf("is %v, outside %v to %s", f.lifetime, identity.LifetimeMin, config.FormatDuration(identity.CALifetime)),
			Remedy: "give a duration such as 365d",
		})
	}
	return errors.Join(errs...)
}

// make writes the agent's directory, the certificate last.
func (f *certFlags) make(name string, now time.Time) error {
	there, err := identity.Exists(f.dir)
	if err != nil {
		return err
	}
	if there && !f.renew {
		return &failure.Problem{
			Code: failure.Refused, What: f.dir + " has an agent's certificate already", Remedy: "give another --dir, or --renew to replace it",
		}
	}
	ca, err := identity.LoadCA(f.caDir)
	if err != nil {
		return err
	}
	hosts := f.hosts
	if len(hosts) == 0 && identity.CheckHost("", name) == nil {
		hosts = []string{name}
	}
	issued, err := ca.Issue(identity.Request{Identity: f.identity(name), Hosts: hosts, Lifetime: f.lifetime.d}, now)
	if err != nil {
		return err
	}
	return f.write(ca, issued)
}

func (f *certFlags) write(ca *identity.CA, issued identity.Issued) error {
	at := func(name string) string { return filepath.Join(f.dir, name) }
	if gossip, err := identity.ReadSecret(filepath.Join(f.caDir, identity.GossipFile)); err == nil {
		if err := identity.WriteSecret(at(identity.GossipFile), gossip); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.signs {
		key, err := ca.Key()
		if err == nil {
			err = identity.WriteSecret(at(identity.CAKeyFile), key)
		}
		if err != nil {
			return err
		}
	}
	for _, file := range []struct {
		name    string
		content []byte
		write   func(string, []byte) error
	}{
		{identity.CAFile, ca.Certificate(), identity.WritePublic},
		{identity.KeyFile, issued.Key, identity.WriteSecret},
		{identity.CertFile, issued.Certificate, identity.WritePublic},
	} {
		if err := file.write(at(file.name), file.content); err != nil {
			return err
		}
	}
	return nil
}

func printIdentity(p *output.Printer, dir string, s *identity.Store) error {
	id := s.Identity()
	if !p.Human() {
		return printJSON(p, id.Name, struct {
			Cluster    string `json:"cluster"`
			Role       string `json:"role"`
			Name       string `json:"name"`
			Cell       string `json:"cell,omitempty"`
			Dir        string `json:"dir"`
			ExpireTime string `json:"expireTime"`
		}{id.ClusterID, string(id.Role), id.Name, string(id.Cell), dir, s.Expires().UTC().Format(time.RFC3339)})
	}
	return p.Describe([]output.Pair{
		{Key: "Agent", Value: output.Safe(id.Name)},
		{Key: "Role", Value: string(id.Role)},
		{Key: "Cell", Value: output.Safe(string(id.Cell))},
		{Key: "Cluster", Value: output.Safe(id.ClusterID)},
		{Key: "Directory", Value: dir},
		{Key: "Expires", Value: s.Expires().UTC().Format(time.RFC3339)},
	})
}
