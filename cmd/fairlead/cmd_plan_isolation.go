package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/plan"
)

func (a *app) planIsolationCommand() *cobra.Command {
	var s plan.Sharding
	c := &cobra.Command{
		Use: "isolation", Short: "Count the hands of workers and how likely tenants share them",
		Long: `Isolation is the arithmetic of shuffle sharding: every tenant has a hand, a few of many workers (or queues) drawn at random. Who floods or
poisons its own hand harms those who hold the same cards, and few hold all of them. With --heavy it says how likely a tenant is stuck: each of
its workers is also in the hand of at least one of so many heavy tenants.`,
		Example: `  fairlead plan isolation --workers 100 --hand 5 --tenants 1000
  fairlead plan isolation --workers 64 --hand 8 --heavy 4 -o json`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd)
			if err != nil {
				return err
			}
			if s.Tenants < 0 {
				return failure.Usagef("give how many there are in all, or 0 to leave it out", "--tenants is %d, below 0", s.Tenants)
			}
			isolation, err := s.Isolation()
			if err != nil {
				return err
			}
			return printPlan(a.printer(l), isolation)
		},
	}
	c.Flags().IntVar(&s.Workers, "workers", 0, "`number` of workers, or queues, that hands are drawn from")
	c.Flags().IntVar(&s.Hand, "hand", 0, "`number` of workers that one tenant has")
	c.Flags().IntVar(&s.Tenants, "tenants", 0, "`number` of tenants, to see how many of them share how much")
	c.Flags().IntVar(&s.Heavy, "heavy", 0, "`number` of tenants that fill their hands, to see how likely another is stuck behind them")
	completeNothing(c, "workers", "hand", "tenants", "heavy")
	return c
}

// planFlightFlags are the flags of plan in-flight.
type planFlightFlags struct {
	rate  string
	times []time.Duration
	limit int64
}

func (a *app) planFlightCommand() *cobra.Command {
	var f planFlightFlags
	c := &cobra.Command{
		Use: "in-flight", Short: "Work out how many jobs are under way at a rate, and what a cap does to it",
		Long: `In-flight is rate x time: as many jobs are under way as start a second, times how many seconds each takes. When a service behind them
slows down, the number grows in proportion; a cap on it (a tenant's --running-max, or a concurrency key) holds whatever the time is, where a cap
on the rate does not.`,
		Example: "  fairlead plan in-flight --rate 100 --time 50ms --time 5s --cap 10",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd)
			if err != nil {
				return err
			}
			rate, err := parseAmountFlag("--rate", f.rate)
			if err != nil {
				return err
			}
			if f.rate == "" || len(f.times) == 0 {
				return failure.Usagef("give --rate and --time, which may stand several times", "there is nothing to multiply")
			}
			flights, err := plan.NewFlights(rate, f.times, f.limit)
			if err != nil {
				return err
			}
			return printPlan(a.printer(l), flights)
		},
	}
	c.Flags().StringVar(&f.rate, "rate", "", "`jobs` that start a second")
	c.Flags().DurationSliceVar(&f.times, "time", nil, "how long a job takes, as a `duration`; several are compared")
	c.Flags().Int64Var(&f.limit, "cap", 0, "`number` of jobs that may be under way (default no bound)")
	completeNothing(c, "rate", "time", "cap")
	return c
}
