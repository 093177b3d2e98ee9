package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "Check the configuration",
		"The configuration is flags, before FAIRLEAD_* variables, before a file, before defaults. It says how to reach a server and what the\nlocal processes do; tenants and keys are objects of the server.",
		"  fairlead config validate -o wide",
		a.configValidateCommand())
}

func (a *app) configValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate [FILE]", Short: "Report every fault of the configuration, and print it",
		Long: `Validate reads the configuration as every command does and reports all faults at once, each with its key and where it came from. Then it
prints the values in force; -o wide says where each came from. FILE is read instead of --config, FAIRLEAD_CONFIG, ./fairlead.yaml and
fairlead/config.yaml of the user. Secrets are masked.`,
		Example: "  fairlead config validate\n  fairlead config validate ./fairlead.yaml -o wide",
		Args:    cobra.MatchAll(cobra.MaximumNArgs(1), utf8Arguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := a.configFile
			if len(args) > 0 {
				file = args[0]
			}
			l, err := config.Load(cmd.Flags(), file)
			if err != nil {
				return err
			}
			a.warnOfVariables()
			c := l.Config
			if err := l.Check(c.Client.Validate(), c.Worker.Validate(), c.Dev.Validate()); err != nil {
				return err
			}
			return a.printSettings(a.printer(l), l)
		},
	}
}

// warnOfVariables names variables that look like the configuration's and are not: a slip there is otherwise silent.
func (a *app) warnOfVariables() {
	known := []string{config.EnvFile}
	for _, k := range config.Keys() {
		known = append(known, k.Env())
	}
	valid := make(map[string]bool)
	for _, name := range known {
		valid[name] = true
	}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, config.EnvPrefix+"_") || valid[name] {
			continue
		}
		hint := ""
		if near, ok := config.Nearest(name, known); ok {
			hint = ": did you mean " + near + "?"
		}
		a.sayf("Warning: the variable %s is not one of the configuration%s", name, hint)
	}
}

// settingView is one key in the machine's formats.
type settingView struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

func (a *app) printSettings(p *output.Printer, l *config.Loaded) error {
	var views []settingView
	for _, s := range l.Settings() {
		v := settingView(s)
		if v.Source == "" {
			v.Source = "default"
		}
		views = append(views, v)
	}
	switch {
	case p.Human():
		var rows [][]string
		for _, v := range views {
			rows = append(rows, []string{v.Key, output.Safe(v.Value), output.Safe(v.Source)})
		}
		if err := p.Section([]output.Column{{Name: "KEY"}, {Name: "VALUE"}, {Name: "SOURCE", Wide: true}}, rows); err != nil {
			return err
		}
	case p.Format == output.FormatName:
		for _, v := range views {
			if err := p.Text(v.Key); err != nil {
				return err
			}
		}
	default:
		text, err := json.MarshalIndent(map[string]any{"items": views}, "", "  ")
		if err != nil {
			return fmt.Errorf("as JSON: %w", err)
		}
		if err := p.Document(text); err != nil {
			return err
		}
	}
	if l.File == "" {
		a.sayf("The configuration is valid; no file was read.")
	} else {
		a.sayf("The configuration is valid; %s was read.", l.File)
	}
	return nil
}
