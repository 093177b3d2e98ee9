package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "See who changed what, and that nothing of it was altered",
		`Every change by an operator is recorded before it is answered, and each record's hash covers the one before it: nobody can change, leave out or put
in a record without changing all that follow. These commands need a key with the scope operate.`,
		"  fairlead audit list --limit 20\n  fairlead audit verify",
		a.auditListCommand(), a.auditVerifyCommand())
}

func (a *app) auditListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List changes, newest first",
		Long:    "List shows who changed what and when, newest first.",
		Example: "  fairlead audit list --limit 20\n  fairlead audit list -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return writePages(a.printer(l), a.auditView(), limit, func(size int32, token string) ([]*fairleadv1.AuditRecord, string, error) {
				resp, err := call(cmd.Context(), s, "list the audit", s.audit.ListAudit, &fairleadv1.ListAuditRequest{PageSize: size, PageToken: token})
				return resp.GetRecords(), resp.GetNextPageToken(), err
			})
		},
	}
	limitFlag(cmd, &limit)
	return cmd
}

func (a *app) auditView() output.View[*fairleadv1.AuditRecord] {
	return output.View[*fairleadv1.AuditRecord]{
		Columns: []output.Column{
			{Name: "RECORD"},
			{Name: "TIME"},
			{Name: "ACTOR"},
			{Name: "ACTION"},
			{Name: "SUBJECT"},
			{Name: "DETAIL", Wide: true},
			{Name: "HASH", Wide: true},
		},
		Row: func(r *fairleadv1.AuditRecord) []string {
			return []string{
				strconv.FormatUint(r.GetSequence(), 10), r.GetTime().AsTime().UTC().Format(time.RFC3339), output.Safe(r.GetActor()), output.Safe(r.GetAction()),
				output.Safe(r.GetSubject()), output.Cut(output.Safe(r.GetDetail()), 100), output.Safe(hex.EncodeToString(r.GetHash())),
			}
		},
		Name: func(r *fairleadv1.AuditRecord) string { return strconv.FormatUint(r.GetSequence(), 10) },
	}
}

// headValue is a flag that takes a record's number and hash.
type headValue struct {
	sequence uint64
	hash     []byte
}

func (v *headValue) Type() string { return "RECORD:HASH" }

func (v *headValue) String() string {
	if v.sequence == 0 {
		return ""
	}
	return strconv.FormatUint(v.sequence, 10) + ":" + hex.EncodeToString(v.hash)
}

func (v *headValue) Set(s string) error {
	number, text, ok := strings.Cut(s, ":")
	n, errNumber := strconv.ParseUint(number, 10, 64)
	hash, errHash := hex.DecodeString(text)
	if !ok || errNumber != nil || errHash != nil || n == 0 || len(hash) != sha256.Size {
		return &valueError{problem: "it is not a record's number and hash", remedy: "give it as fairlead audit verify printed it"}
	}
	*v = headValue{sequence: n, hash: hash}
	return nil
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var since headValue
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the chain of the audit",
		Long: `Verify reads every record that is kept and works out its hash anew. It prints the newest record's number and hash: keep that elsewhere, and give
it with --since the next time, so that whoever could rewrite the whole chain is found out as well. The exit code is 1 when the chain is
broken.`,
		Example: "  fairlead audit verify\n  fairlead audit verify -o name > head.txt\n  fairlead audit verify --since 17:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			c := chain{since: since}
			bar := a.newProgress()
			defer bar.end()
			for token := ""; ; {
				resp, err := call(cmd.Context(), s, "read the audit", s.audit.ListAudit, &fairleadv1.ListAuditRequest{PageSize: pageSizeMax, PageToken: token})
				if err != nil {
					return err
				}
				if err := c.add(resp.GetRecords()...); err != nil {
					return err
				}
				bar.showf("read the audit: %d records", c.count)
				if token = resp.GetNextPageToken(); token == "" {
					if err := c.end(resp); err != nil {
						return err
					}
					break
				}
			}
			return c.print(a.printer(l))
		},
	}
	cmd.Flags().Var(&since, "since", "`RECORD:HASH` that verify printed before, which has to be in the chain")
	completeNothing(cmd, "since")
	return cmd
}

// chain checks records that come newest first.
type chain struct {
	since  headValue
	head   *fairleadv1.AuditRecord // the newest
	oldest *fairleadv1.AuditRecord // the last that came, whose hash waits for the one before it
	count  int
	found  bool // since was among them
}

// brokenChain says at which record the chain does not hold.
func brokenChain(sequence uint64, format string, args ...any) error {
	return &failure.Problem{
		Code: failure.Failed, What: fmt.Sprintf("the audit is broken at record %d", sequence), Why: fmt.Sprintf(format, args...),
		Remedy: "somebody or something changed control's state outside its log: keep a snapshot, and compare the replicas",
	}
}

func (c *chain) add(records ...*fairleadv1.AuditRecord) error {
	for _, r := range records {
		if c.oldest != nil {
			if r.GetSequence()+1 != c.oldest.GetSequence() {
				return brokenChain(c.oldest.GetSequence(), "the record before it is %d", r.GetSequence())
			}
			if err := follows(c.oldest, r.GetHash()); err != nil {
				return err
			}
		} else {
			c.head = r
		}
		if r.GetSequence() == c.since.sequence {
			if !bytes.Equal(r.GetHash(), c.since.hash) {
				return brokenChain(r.GetSequence(), "its hash is %x, and was %x", r.GetHash(), c.since.hash)
			}
			c.found = true
		}
		c.oldest = r
		c.count++
	}
	return nil
}

// follows checks a record's hash on that of the record before it.
func follows(r *fairleadv1.AuditRecord, before []byte) error {
	if len(before) != sha256.Size && len(before) != 0 {
		return brokenChain(r.GetSequence(), "the hash before it has %d bytes", len(before))
	}
	var b [sha256.Size]byte
	copy(b[:], before)
	want := state.AuditRecord{
		Sequence: r.GetSequence(), Time: cell.InstantOf(r.GetTime().AsTime()), Actor: r.GetActor(), Action: r.GetAction(), Subject: r.GetSubject(),
		Detail: r.GetDetail(), Index: r.GetIndex(),
	}.Chain(b)
	if !bytes.Equal(want[:], r.GetHash()) {
		return brokenChain(r.GetSequence(), "its hash is %x, and by what it says and the record before it is %x", r.GetHash(), want)
	}
	return nil
}

// end checks the oldest record that is kept, and that what was to be found was.
func (c *chain) end(last *fairleadv1.ListAuditResponse) error {
	if c.oldest != nil {
		if last.GetFirstSequence() > c.oldest.GetSequence() {
			// The oldest were dropped while they were read: their hashes are not known to the server any more.
			last.HashBeforeFirst = nil
		} else if err := follows(c.oldest, last.GetHashBeforeFirst()); err != nil {
			return err
		}
	}
	switch {
	case c.since.sequence == 0 || c.found:
		return nil
	case c.oldest != nil && c.since.sequence < c.oldest.GetSequence():
		return &failure.Problem{
			Code: failure.Failed, What: fmt.Sprintf("record %d is not kept any more", c.since.sequence),
			Why: fmt.Sprintf("the oldest that is kept is %d: whether it follows from the one of --since cannot be seen", c.oldest.GetSequence()), Remedy: "verify more often",
		}
	default:
		return brokenChain(c.since.sequence, "it was there before, and is missing")
	}
}

func (c *chain) print(p *output.Printer) error {
	head := headValue{sequence: c.head.GetSequence(), hash: c.head.GetHash()}
	if !p.Human() {
		return printJSON(p, head.String(), struct {
			Records int    `json:"records"`
			First   uint64 `json:"firstSequence"`
			Last    uint64 `json:"lastSequence"`
			Head    string `json:"head"`
		}{c.count, c.oldest.GetSequence(), c.head.GetSequence(), head.String()})
	}
	if c.count == 0 {
		return p.Text("The audit has no record.")
	}
	return p.Describe([]output.Pair{
		{Key: "Records", Value: fmt.Sprintf("%d, from %d to %d", c.count, c.oldest.GetSequence(), c.head.GetSequence())},
		{Key: "Chain", Value: "holds"},
		{Key: "Head", Value: head.String()},
	})
}
