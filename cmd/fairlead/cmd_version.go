package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// version is set at link time for a release: -ldflags "-X main.version=v1.2.3".
var version string

// protocol is the API that this binary speaks.
const protocol = "fairlead.v1"

// build says what this binary was made from.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"commitTime,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol string `json:"protocol"`
}

func buildVersion() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Protocol: protocol}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
		if b.Version == "" {
			b.Version = info.Main.Version
		}
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this binary",
		Long:    "Version prints what this binary was made from: version, commit, Go and the protocol that it speaks. No server is asked.",
		Example: "  fairlead version\n  fairlead version -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A broken configuration must not keep anybody from reading the version.
			p := &output.Printer{Out: a.out, Format: output.Format(cmd.Flag("output").Value.String())}
			return printVersion(p, buildVersion())
		},
	}
}

func printVersion(p *output.Printer, b build) error {
	if p.Format == output.FormatName {
		return p.Text(b.Version)
	}
	if !p.Human() {
		text, err := json.MarshalIndent(b, "", "  ")
		if err != nil {
			return fmt.Errorf("as JSON: %w", err)
		}
		return p.Document(text)
	}
	commit := b.Commit
	if b.Modified {
		commit += " (modified)"
	}
	return p.Describe([]output.Pair{
		{Key: "Version", Value: b.Version},
		{Key: "Commit", Value: commit},
		{Key: "Committed", Value: b.Time},
		{Key: "Go", Value: b.Go},
		{Key: "Platform", Value: b.Platform},
		{Key: "Protocol", Value: b.Protocol},
	})
}
