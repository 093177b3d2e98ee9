package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// usage returns what stands below a command's description in its help: how to write it, examples, the commands below it and its own
// flags. The flags of a connection are the same everywhere and are shown once, at the root.
func usage(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString("  " + cmd.CommandPath() + " COMMAND [flags]\n")
	} else {
		b.WriteString("  " + cmd.UseLine() + "\n")
	}
	if cmd.HasExample() {
		b.WriteString("\nExamples:\n" + cmd.Example + "\n")
	}
	for _, g := range cmd.Groups() {
		writeCommands(&b, g.Title, cmd, g.ID)
	}
	writeCommands(&b, "Commands:", cmd, "")
	own := cmd.NonInheritedFlags()
	if flags := flagLines(own); flags != "" {
		b.WriteString("\nFlags:\n" + flags)
	}
	switch {
	case cmd.HasAvailableSubCommands():
		b.WriteString("\nSee " + cmd.CommandPath() + " COMMAND --help for a command")
		if cmd.HasParent() {
			b.WriteString(", and " + cmd.Root().Name() + " --help for the flags of every command")
		}
		b.WriteString(".\n")
	case cmd.HasParent():
		b.WriteString("\nSee " + cmd.Root().Name() + " --help for the flags of every command: --addr, --token, --as, --output and others.\n")
	}
	return b.String()
}

func writeCommands(b *strings.Builder, title string, parent *cobra.Command, group string) {
	var pairs []output.Pair
	for _, c := range parent.Commands() {
		if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
			pairs = append(pairs, output.Pair{Key: "  " + c.Name(), Value: c.Short})
		}
	}
	if len(pairs) > 0 {
		b.WriteString("\n" + title + "\n" + columns(pairs))
	}
}

func flagLines(flags *pflag.FlagSet) string {
	var pairs []output.Pair
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "      --" + f.Name
		if f.Shorthand != "" {
			name = "  -" + f.Shorthand + ", --" + f.Name
		}
		value, text := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		if shown := f.DefValue; shown != "" && shown != "0" && shown != "0s" && shown != "false" && shown != "[]" {
			text += " (default " + shown + ")"
		}
		pairs = append(pairs, output.Pair{Key: name, Value: text})
	})
	return columns(pairs)
}

// columns aligns pairs.
func columns(pairs []output.Pair) string {
	width := 0
	for _, p := range pairs {
		width = max(width, len(p.Key))
	}
	var b strings.Builder
	for _, p := range pairs {
		b.WriteString(p.Key + strings.Repeat(" ", width-len(p.Key)+3) + p.Value + "\n")
	}
	return b.String()
}
