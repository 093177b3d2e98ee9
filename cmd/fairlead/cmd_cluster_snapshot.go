package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// snapshotTimeout bounds a save and a restore, which send the whole state.
const snapshotTimeout = time.Hour

// snapshotPieceBytes is how much of a file goes in one message: far below what a message may have, and few messages.
const snapshotPieceBytes = 256 << 10

func (a *app) clusterSnapshotCommand() *cobra.Command {
	return group("snapshot", "Save the state of control or of a cell, and bring it back",
		`A snapshot is the whole state of control's log, or of a cell's, in one file with a checksum. It has tenants, keys' hashes and assignments, or
jobs with their payloads: keep it as secret as they are.`,
		"  fairlead cluster snapshot save control.snap\n  fairlead cluster snapshot restore control.snap",
		a.snapshotSaveCommand(), a.snapshotRestoreCommand())
}

func (a *app) snapshotSaveCommand() *cobra.Command {
	var cellName string
	var force bool
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save the state to a file",
		Long: `Save writes the present state of control, or of a cell, to a file, which appears only once it is complete, readable by its owner alone. FILE
may be - for standard output.`,
		Example: "  fairlead cluster snapshot save control.snap\n  fairlead cluster snapshot save cell-a.snap --cell cell-a\n  fairlead cluster snapshot save - > control.snap",
		Args:    arguments(false, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCell(cmd, cellName); err != nil {
				return err
			}
			if err := checkNewFile(args[0], force); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), snapshotTimeout)
			defer cancel()
			n, err := a.saveSnapshot(ctx, s, cellName, args[0])
			if err != nil {
				return err
			}
			if args[0] == "-" {
				a.sayf("%s were saved.", output.Bytes(n))
				return nil
			}
			a.next("fairlead cluster snapshot restore %s%s brings it back", shellWord(args[0]), withCell(cellName))
			return printSaved(a.printer(l), args[0], cellName, n)
		},
	}
	cellFlag(cmd, &cellName, "`cell` whose state is meant; control's when not given")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

func printSaved(p *output.Printer, file, cellName string, n int64) error {
	if !p.Human() {
		return printJSON(p, file, struct {
			File  string `json:"file"`
			Cell  string `json:"cell,omitempty"`
			Bytes int64  `json:"bytes"`
		}{file, cellName, n})
	}
	return p.Text(fmt.Sprintf("Saved %s to %s.", output.Bytes(n), file))
}

// checkNewFile refuses a file that is there, unless it may be replaced.
func checkNewFile(path string, force bool) error {
	if path == "-" {
		return nil
	}
	_, err := os.Lstat(path)
	switch {
	case err == nil && !force:
		return &failure.Problem{Code: failure.Refused, What: path + " is there already", Remedy: "name another file, or replace it with --force"}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return failure.Usagef("name another file", "%s cannot be looked at: %v", path, err)
	}
	return nil
}

// saveSnapshot writes the state to a file beside the one named, and gives it its name once it is complete and durable.
func (a *app) saveSnapshot(ctx context.Context, s *session, cellName, path string) (int64, error) {
	if path == "-" {
		return a.receiveSnapshot(ctx, s, cellName, a.out)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, failure.Usagef("name a file in a directory that can be written", "the snapshot cannot be written: %v", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone when all went well
	n, err := a.receiveSnapshot(ctx, s, cellName, f)
	if err != nil {
		_ = f.Close()
		return n, err
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(f.Name(), path)); err != nil {
		return n, fmt.Errorf("writing the snapshot: %w", err)
	}
	return n, nil
}

func (a *app) receiveSnapshot(ctx context.Context, s *session, cellName string, to io.Writer) (int64, error) {
	doing := "save the state of " + ownerOf(cellName)
	stream, err := s.cluster.SaveSnapshot(ctx, &fairleadv1.SaveSnapshotRequest{Cell: cellName})
	if err != nil {
		return 0, s.failed(doing, caused(ctx, err))
	}
	defer stream.Close() //nolint:errcheck // what matters was received
	bar := a.newProgress()
	defer bar.end()
	var n int64
	for stream.Receive() {
		if _, err := to.Write(stream.Msg().GetData()); err != nil {
			return n, fmt.Errorf("writing the snapshot: %w", err)
		}
		n += int64(len(stream.Msg().GetData()))
		bar.showf("%s: %s", doing, output.Bytes(n))
	}
	if err := stream.Err(); err != nil {
		return n, s.failed(doing, caused(ctx, err))
	}
	if n == 0 {
		return 0, s.failed(doing, errors.New("the answer is empty"))
	}
	return n, nil
}

func ownerOf(cellName string) string {
	if cellName == "" {
		return "control"
	}
	return cellName
}

// caused returns the cause of ctx's end where that was an interrupt, and else err.
func caused(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, failure.ErrInterrupted) {
		return cause
	}
	return err
}

func (a *app) snapshotRestoreCommand() *cobra.Command {
	var cellName string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Replace the state by a saved one",
		Long: `Restore replaces the state of control by a saved one: what was accepted after it was saved is lost, and every epoch is raised, so that nothing
that was given out in the meantime is taken for current. Join tokens end. The file is checked as a whole before anything changes. It asks
first.`,
		Example: "  fairlead cluster snapshot restore control.snap\n  fairlead cluster snapshot restore control.snap --dry-run\n  fairlead cluster snapshot restore control.snap --yes -o json",
		Args:    arguments(false, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCell(cmd, cellName); err != nil {
				return err
			}
			return a.restoreSnapshot(cmd, cellName, args[0], dryRun, yes)
		},
	}
	cellFlag(cmd, &cellName, "`cell` whose state is meant; control's when not given")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "look at the file and at who would be asked, and change nothing")
	yesFlag(cmd, &yes)
	return cmd
}

func (a *app) restoreSnapshot(cmd *cobra.Command, cellName, path string, dryRun, yes bool) error {
	f, err := os.Open(path)
	if err != nil {
		return failure.Usagef("name a file that fairlead cluster snapshot save wrote", "the snapshot cannot be read: %v", err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return failure.Usagef("name a file that fairlead cluster snapshot save wrote", "%s is empty or no file", path)
	}
	s, l, err := a.connect(cmd, roleAdmin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), snapshotTimeout)
	defer cancel()
	c, err := call(ctx, s, "get the cluster", s.cluster.GetCluster, &fairleadv1.GetClusterRequest{})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the state of %s of the cluster %s (%d tenants, %d cells) by %s of %s", ownerOf(cellName), output.Safe(c.GetClusterId()), c.GetTenants(),
		c.GetCells(), output.Bytes(info.Size()), path)
	if dryRun {
		a.sayf("It would replace %s. Nothing is changed (--dry-run).", what)
		return nil
	}
	if err := a.confirm(ctx, yes, "Replace "+what+"? What was accepted after it was saved is lost."); err != nil {
		return err
	}
	resp, err := a.sendSnapshot(ctx, s, cellName, f, info.Size())
	if err != nil {
		return err
	}
	p := a.printer(l)
	if !p.Human() {
		return p.Object(ownerOf(cellName), resp)
	}
	a.next("fairlead placement check")
	return p.Describe([]output.Pair{
		{Key: "Restored", Value: ownerOf(cellName)},
		{Key: "Saved", Value: a.when(resp.GetSavedTime())},
		{Key: "Entry", Value: fmt.Sprint(resp.GetIndex())},
		{Key: "Restores in all", Value: decimal(resp.GetRestores())},
	})
}

// sendSnapshot streams a file. Nothing has changed when the stream is cut: the whole is checked before it is taken.
func (a *app) sendSnapshot(ctx context.Context, s *session, cellName string, from io.Reader, size int64) (*fairleadv1.RestoreSnapshotResponse, error) {
	doing := "restore the state of " + ownerOf(cellName)
	stream, err := s.cluster.RestoreSnapshot(ctx)
	if err != nil {
		return nil, s.failed(doing, caused(ctx, err))
	}
	bar := a.newProgress()
	defer bar.end()
	buf := make([]byte, snapshotPieceBytes)
	var sent int64
	for {
		n, readErr := io.ReadFull(from, buf)
		if n > 0 {
			// A message is encoded before Send returns, so the buffer is free again.
			if err := stream.Send(&fairleadv1.RestoreSnapshotRequest{Cell: cellName, Data: buf[:n]}); err != nil {
				if errors.Is(err, io.EOF) { // the server has answered before the end: why, Close tells
					break
				}
				return nil, s.failed(doing, caused(ctx, err))
			}
			sent += int64(n)
			bar.showf("%s: %s of %s", doing, output.Bytes(sent), output.Bytes(size))
		}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		if readErr != nil {
			return nil, fmt.Errorf("reading the snapshot: %w", readErr) // the context ends the stream
		}
	}
	resp, err := stream.CloseAndReceive()
	if err != nil {
		return nil, s.failed(doing, caused(ctx, err))
	}
	return resp, nil
}
