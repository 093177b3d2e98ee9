package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
)

// The files of a cluster's directory beside the authority's and gossip's. Each agent has a folder of its name in it.
const (
	ClusterFile  = "cluster.yaml" // the cluster's id
	AdminKeyFile = "admin.key"    // the secret of the first admin API key
)

// AgentsMax bounds the agents that one directory is prepared for: each costs a key and a folder.
const AgentsMax = 1000

// PrepareConfig says what a new cluster's directory is to hold.
type PrepareConfig struct {
	// Dir is the directory; it is made when it is missing. Required.
	Dir string
	// ClusterID is the cluster's; one is made, or the one that is there is taken, when it is empty.
	ClusterID string
	// Agents are who gets a folder. The cluster of each is filled in.
	Agents []Request
	// AdminSecret makes the secret of the first admin key. Required.
	AdminSecret func() string
	// Renew makes new keys and certificates for agents that have them already.
	Renew bool
	// DryRun says what would be made and makes nothing.
	DryRun bool
}

// Made is a file that [Prepare] looked after.
type Made struct {
	Path    string
	New     bool      // false when it was there and has been left as it is
	Expires time.Time // of a certificate
}

// Prepare makes a cluster's directory: the authority, the keys of gossip, the first admin key's secret, and a folder for each agent with all that it
// needs to start. What is there stays as it is, so that it can be run again with more agents. It returns a *[FileError] when what is
// there is another's, and a *[cell.FieldError] for what was asked wrongly; what was made before that stays.
func Prepare(cfg PrepareConfig, now time.Time) ([]Made, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &preparation{cfg: cfg, now: now}
	if err := p.authority(); err != nil {
		return p.made, err
	}
	gossip, err := p.once(filepath.Join(cfg.Dir, GossipFile), ReadSecret, WriteSecret, func() ([]byte, error) {
		return FormatGossipKeys([][]byte{NewGossipKey()}), nil
	})
	if err != nil {
		return p.made, err
	}
	if _, err := ParseGossipKeys(gossip); err != nil {
		return p.made, &FileError{Path: filepath.Join(cfg.Dir, GossipFile), Problem: err.Error(), Err: err}
	}
	p.gossip = gossip
	_, err = p.once(filepath.Join(cfg.Dir, AdminKeyFile), ReadSecret, WriteSecret, func() ([]byte, error) { return []byte(cfg.AdminSecret() + "\n"), nil })
	if err != nil {
		return p.made, err
	}
	for _, r := range cfg.Agents {
		r.Identity.ClusterID = p.ca.ClusterID()
		if err := p.agent(r); err != nil {
			return p.made, err
		}
	}
	return p.made, nil
}

func (cfg PrepareConfig) check() error {
	var errs []error
	if cfg.ClusterID != "" {
		errs = append(errs, CheckClusterID("cluster", cfg.ClusterID))
	}
	if len(cfg.Agents) > AgentsMax {
		errs = append(errs, &cell.FieldError{Field: "agents", Problem: fmt.Sprintf("has %d, of at most %d", len(cfg.Agents), AgentsMax), Remedy: "let the others join with a token"})
	}
	seen := make(map[string]bool, len(cfg.Agents))
	for _, r := range cfg.Agents {
		id := r.Identity
		id.ClusterID = "any"
		errs = append(errs, id.Check(), r.check())
		if id.Name == "." || id.Name == ".." || seen[id.Name] {
			errs = append(errs, &cell.FieldError{Field: "agents", Problem: fmt.Sprintf("has the name %.40q twice", id.Name), Remedy: "give each agent a name of its own"})
		}
		seen[id.Name] = true
	}
	return errors.Join(errs...)
}

// preparation is one run of Prepare.
type preparation struct {
	cfg    PrepareConfig
	now    time.Time
	ca     *CA
	gossip []byte
	made   []Made
}

// once returns what is in a file, which it makes when it is missing.
func (p *preparation) once(
	path string, read func(string) ([]byte, error), write func(string, []byte) error, make func() ([]byte, error),
) ([]byte, error) {
	content, err := read(path)
	if err == nil {
		p.made = append(p.made, Made{Path: path})
		return content, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if content, err = make(); err != nil {
		return nil, err
	}
	return content, p.put(path, content, write)
}

func (p *preparation) put(path string, content []byte, write func(string, []byte) error) error {
	p.made = append(p.made, Made{Path: path, New: true})
	if p.cfg.DryRun {
		return nil
	}
	return write(path, content)
}

// clusterRecord is cluster.yaml.
type clusterRecord struct {
	Cluster string `yaml:"cluster"`
}

func (p *preparation) authority() error {
	dir := p.cfg.Dir
	ca, err := LoadCA(dir)
	switch {
	case err == nil:
		p.made = append(p.made, Made{Path: filepath.Join(dir, CAFile), Expires: ca.Expires()}, Made{Path: filepath.Join(dir, CAKeyFile)})
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		if err := absent(filepath.Join(dir, CAFile), filepath.Join(dir, CAKeyFile)); err != nil {
			return err
		}
		if ca, err = p.newAuthority(); err != nil {
			return err
		}
	}
	if id := p.cfg.ClusterID; id != "" && id != ca.ClusterID() {
		return &FileError{Path: filepath.Join(dir, CAFile), Problem: fmt.Sprintf("is of the cluster %s, not %s", ca.ClusterID(), id), Remedy: "prepare another cluster in another directory"}
	}
	p.ca = ca
	path := filepath.Join(dir, ClusterFile)
	content, err := p.once(path, readFile, WritePublic, func() ([]byte, error) { return yaml.Marshal(clusterRecord{Cluster: ca.ClusterID()}) })
	if err != nil {
		return err
	}
	var r clusterRecord
	if err := yaml.Unmarshal(content, &r); err != nil || r.Cluster != ca.ClusterID() {
		return &FileError{Path: path, Problem: fmt.Sprintf("is of the cluster %.70q, and the authority beside it of %s", r.Cluster, ca.ClusterID()), Remedy: "restore it, or delete it", Err: err}
	}
	return nil
}

// absent refuses to make an authority where half of one is: whatever it signed would be lost.
func absent(paths ...string) error {
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return &FileError{Path: path, Problem: "is there, and the other half of the authority is not", Remedy: "restore both, or prepare another directory"}
		}
	}
	return nil
}

func (p *preparation) newAuthority() (*CA, error) {
	id := p.cfg.ClusterID
	if id == "" {
		id = NewClusterID()
	}
	ca, err := CreateCA(id, p.now)
	if err != nil {
		return nil, err
	}
	key, err := ca.Key()
	if err != nil {
		return nil, err
	}
	// The key first: a certificate alone would be of an authority that nobody is.
	if err := p.put(filepath.Join(p.cfg.Dir, CAKeyFile), key, WriteSecret); err != nil {
		return nil, err
	}
	if err := p.put(filepath.Join(p.cfg.Dir, CAFile), ca.Certificate(), WritePublic); err != nil {
		return nil, err
	}
	p.made[len(p.made)-1].Expires = ca.Expires()
	return ca, nil
}

// agent makes the folder of an agent, or what is missing in it.
func (p *preparation) agent(r Request) error {
	dir := filepath.Join(p.cfg.Dir, r.Identity.Name)
	at := func(name string) string { return filepath.Join(dir, name) }
	kept, err := p.kept(dir, r.Identity)
	if err != nil {
		return err
	}
	if _, err := p.once(at(CAFile), readFile, WritePublic, func() ([]byte, error) { return readFileOr(filepath.Join(p.cfg.Dir, CAFile), p.ca.Certificate()) }); err != nil {
		return err
	}
	if _, err := p.once(at(GossipFile), ReadSecret, WriteSecret, func() ([]byte, error) { return p.gossip, nil }); err != nil {
		return err
	}
	if r.Identity.Role == RoleControl { // so that it can sign for who joins
		if _, err := p.once(at(CAKeyFile), ReadSecret, WriteSecret, p.ca.Key); err != nil {
			return err
		}
	}
	if kept {
		return nil
	}
	issued, err := p.ca.Issue(r, p.now)
	if err != nil {
		return err
	}
	// The certificate last: an agent's folder with one is complete.
	if err := p.put(at(KeyFile), issued.Key, WriteSecret); err != nil {
		return err
	}
	if err := p.put(at(CertFile), issued.Certificate, WritePublic); err != nil {
		return err
	}
	certs, err := parseCertificates(issued.Certificate)
	if err == nil {
		p.made[len(p.made)-1].Expires = certs[0].NotAfter
	}
	return err
}

// readFileOr returns what is in a file, or content when a dry run has not made it.
func readFileOr(path string, content []byte) ([]byte, error) {
	got, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return content, nil
	}
	return got, err
}

// kept reports whether there is a certificate and it stays, after a look that it is this agent's: before anything else is put beside it.
func (p *preparation) kept(dir string, id Identity) (bool, error) {
	path := filepath.Join(dir, CertFile)
	text, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	certs, err := parseCertificates(text)
	if err != nil {
		return false, &FileError{Path: path, Problem: "cannot be used: " + err.Error(), Remedy: "delete it, and prepare again", Err: err}
	}
	got, err := Of(certs[0])
	if err != nil || got != id {
		return false, &FileError{Path: path, Problem: fmt.Sprintf("is of %s, not %s", got, id), Remedy: "give the agent another name, or delete its folder", Err: err}
	}
	if p.cfg.Renew {
		return false, nil
	}
	p.made = append(p.made, Made{Path: filepath.Join(dir, KeyFile)}, Made{Path: path, Expires: certs[0].NotAfter})
	return true, nil
}
