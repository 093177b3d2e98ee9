package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// differencesDefault is how many differences are listed of a class: more of the same kind say no more.
const differencesDefault = 1000

func (a *app) migrateDiffCommand() *cobra.Command {
	var f migrationFlags
	class := newEnum("", config.ClassNames())
	limit := differencesDefault
	cmd := &cobra.Command{
		Use: "diff --tenant TENANT", Short: "Compare what both cells have of a tenant that is being moved",
		Long: `Diff compares the digests of a tenant's jobs and keys in both cells, and names what differs. While the tenant is served what was changed a moment
ago is on its way: a difference counts when both cells were compared as of the same change. The exit code is 1 when something differs.`,
		Example: "  fairlead migrate diff --tenant acme\n  fairlead migrate diff --tenant acme --class batch -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			if limit < 1 {
				return failure.Usagef("give a number of differences", "--limit is %d, below 1", limit)
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			m, err := f.find(cmd.Context(), s)
			if err != nil {
				return err
			}
			return a.diffMigration(cmd.Context(), s, a.printer(l), m, classOf(class.value), limit)
		},
	}
	f.add(a, cmd)
	classFlag(cmd, class, "class to compare; both when not given")
	cmd.Flags().IntVar(&limit, "limit", limit, "list at most so many `differences` of a class")
	completeNothing(cmd, "limit")
	return cmd
}

// The JSON form of a comparison.
type (
	diffView struct {
		Class         string           `json:"class"`
		Equal         bool             `json:"equal"`
		SamePoint     bool             `json:"samePoint"`
		Buckets       int32            `json:"buckets"`
		BucketsDiffer int32            `json:"bucketsDiffer"`
		Differences   []differenceView `json:"differences"`
		More          bool             `json:"more,omitempty"` // than are listed
	}
	differenceView struct {
		Kind    string `json:"kind"`
		ID      string `json:"id"`
		Problem string `json:"problem"`
	}
)

func (a *app) diffMigration(ctx context.Context, s *session, p *output.Printer, m *fairleadv1.Migration, class fairleadv1.Class, limit int) error {
	var views []diffView
	differ := 0
	for _, c := range cell.Classes() {
		pb := fairleadv1.Class(1 + c.Index())
		if class != fairleadv1.Class_CLASS_UNSPECIFIED && class != pb {
			continue
		}
		v, err := diffClass(ctx, s, m, pb, limit)
		if err != nil {
			return err
		}
		if !v.Equal {
			differ++
		}
		views = append(views, v)
	}
	if err := printDiff(p, views); err != nil {
		return err
	}
	if differ == 0 {
		return nil
	}
	problem := &failure.Problem{Code: failure.Failed, What: fmt.Sprintf("%s and %s differ in what they have of %s", m.GetSource(), m.GetTarget(), m.GetTenant())}
	for _, v := range views {
		if !v.Equal && !v.SamePoint {
			problem.Why = "they were not compared as of the same change: what differs may be on its way"
			problem.Remedy = "compare again in a moment"
		}
	}
	return problem
}

// diffClass compares a class to the end, or until enough differences are known.
func diffClass(ctx context.Context, s *session, m *fairleadv1.Migration, class fairleadv1.Class, limit int) (diffView, error) {
	v := diffView{Class: classText(class), SamePoint: true, Equal: true, Differences: []differenceView{}}
	for after := int32(0); ; {
		resp, err := call(ctx, s, "compare the cells of the migration "+m.GetId(), s.migrations.DiffMigration,
			&fairleadv1.DiffMigrationRequest{Id: m.GetId(), Class: class, AfterBucket: after})
		if err != nil {
			return v, err
		}
		v.SamePoint, v.Equal = v.SamePoint && resp.GetSamePoint(), v.Equal && resp.GetEqual()
		v.Buckets, v.BucketsDiffer = resp.GetBuckets(), max(v.BucketsDiffer, resp.GetBucketsDiffer())
		for _, d := range resp.GetDifferences() {
			v.Differences = append(v.Differences, differenceView{d.GetKind(), d.GetId(), d.GetProblem()})
		}
		next := resp.GetNextBucket()
		if v.More = next > after || len(v.Differences) > limit; next <= after || len(v.Differences) >= limit { // a bucket that does not rise would be asked for ever
			v.Differences = v.Differences[:min(limit, len(v.Differences))]
			return v, nil
		}
		after = next
	}
}

func printDiff(p *output.Printer, views []diffView) error {
	if !p.Human() {
		var ids []string
		for _, v := range views {
			for _, d := range v.Differences {
				ids = append(ids, d.ID)
			}
		}
		if p.Format == output.FormatName && len(ids) == 0 {
			return nil
		}
		return printJSON(p, strings.Join(ids, "\n"), struct {
			Items []diffView `json:"items"`
		}{views})
	}
	rows, found := make([][]string, 0, len(views)), [][]string(nil)
	for _, v := range views {
		verdict, point := "equal", "the same change"
		if !v.Equal {
			verdict = "DIFFERS"
		}
		if !v.SamePoint {
			point = "different changes"
		}
		rows = append(rows, []string{v.Class, verdict, fmt.Sprintf("%d of %d buckets differ", v.BucketsDiffer, v.Buckets), point})
		for _, d := range v.Differences {
			found = append(found, []string{v.Class, output.Safe(d.Kind), output.Safe(d.ID), output.Safe(d.Problem)})
		}
		if v.More {
			found = append(found, []string{v.Class, "", "", "and more"})
		}
	}
	if err := p.Section([]output.Column{{Name: "CLASS"}, {Name: "VERDICT"}, {Name: "DIGESTS"}, {Name: "AS OF"}}, rows); err != nil {
		return err
	}
	return section(p, []output.Column{{Name: "CLASS"}, {Name: "KIND"}, {Name: "ID"}, {Name: "PROBLEM"}}, found)
}
