package main

import (
	"bufio"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

// yesFlag adds --yes to a command that destroys something.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "do it without asking")
}

// confirm asks at the terminal whether what is about to be destroyed may be. It returns nil when --yes was given or the answer is yes; without a
// terminal it does not guess.
func (a *app) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.talks {
		return failure.Usagef("give --yes", "%s Nobody is there to be asked", question)
	}
	a.talkf("%s [y/N] ", question)
	line, err := bufio.NewReader(stoppable(ctx, a.in)).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(line)); word == "y" || word == "yes" {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	return &failure.Problem{Code: failure.Refused, What: "nothing is done", Why: "the answer was not yes"}
}
