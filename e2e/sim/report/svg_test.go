package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/report"
)

// TestPicturesAreSound: whatever the names and the times, every picture is XML of known elements only, has nothing that runs or that is fetched, and
// draws nothing outside of itself.
func TestPicturesAreSound(t *testing.T) {
	check := func(t rapidOrTesting, runs []*sim.Run, w report.Window) {
		for name, drawing := range map[string][]byte{
			"timeline": report.Timeline(runs, w), "waits": report.Waits(runs), "shares": report.Shares(runs, w),
		} {
			if err := sound(drawing); err != nil {
				t.Fatalf("%s: %v\n%.3000s", name, err, drawing)
			}
		}
	}
	check(t, threePolicies(), report.Window{})
	check(t, []*sim.Run{mixed()}, report.Window{})
	check(t, nil, report.Window{})
	check(t, []*sim.Run{{Scenario: "empty", Policy: "none"}}, report.Window{})
	rapid.Check(t, func(t *rapid.T) {
		var runs []*sim.Run
		for range rapid.IntRange(1, 3).Draw(t, "runs") {
			runs = append(runs, anyNamedRun(t))
		}
		check(t, runs, report.Window{
			From: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "from")), To: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "to")),
		})
	})
}

type rapidOrTesting interface {
	Fatalf(format string, args ...any)
}

func anyNamedRun(t *rapid.T) *sim.Run {
	name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[<>&"'\]a-z\x00-\x1f]{0,40}`))
	run := &sim.Run{Scenario: name.Draw(t, "scenario"), Policy: name.Draw(t, "policy"), Slots: rapid.IntRange(1, 50).Draw(t, "slots")}
	names := rapid.SliceOfN(name, 1, 12).Draw(t, "names")
	at := int64(0)
	for i := range rapid.IntRange(0, 30).Draw(t, "jobs") {
		at += rapid.Int64Range(0, 1e11).Draw(t, "arrival")
		start := at + rapid.Int64Range(0, 1e11).Draw(t, "wait")
		end := start + rapid.Int64Range(1, 1e11).Draw(t, "service")
		traits := &sim.Traits{Tenant: rapid.SampledFrom(names).Draw(t, "tenant"), Cohort: rapid.SampledFrom(names).Draw(t, "cohort"), Class: cell.ClassBatch}
		job := &sim.Job{Traits: traits, ID: i, Arrival: time.Duration(at), Service: time.Duration(end - start), Deadline: time.Duration(start)}
		run.Records = append(run.Records, sim.Record{
			Job: job, Start: time.Duration(start), End: time.Duration(end), Slot: int32(i % run.Slots), Charged: 1,
			State: rapid.SampledFrom([]sim.State{0, 1, 2, 2, 2, 3, 4}).Draw(t, "state"),
		})
		run.End = max(run.End, time.Duration(end))
	}
	return run
}

// sound returns what is wrong with a picture.
func sound(drawing []byte) error {
	d := xml.NewDecoder(bytes.NewReader(drawing))
	var width, height float64
	var open map[string]string // the text that is being read
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if text, ok := token.(xml.CharData); ok && open != nil {
			if err := textInside(open, string(text), width); err != nil {
				return err
			}
			open = nil
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !slices.Contains([]string{"svg", "title", "desc", "style", "rect", "path", "text", "circle"}, e.Name.Local) {
			return fmt.Errorf("it has an element %s", e.Name.Local)
		}
		a := map[string]string{}
		for _, attr := range e.Attr {
			if strings.HasPrefix(attr.Name.Local, "on") || attr.Name.Local == "href" || attr.Name.Local == "style" {
				return fmt.Errorf("it has an attribute %s", attr.Name.Local)
			}
			a[attr.Name.Local] = attr.Value
		}
		switch e.Name.Local {
		case "svg":
			width, height = float(a["width"]), float(a["height"])
		case "rect":
			err = inside(float(a["x"]), float(a["y"]), width, height)
			err = errors.Join(err, inside(float(a["x"])+float(a["width"]), float(a["y"])+float(a["height"]), width, height))
		case "text":
			open = a
			err = inside(float(a["x"]), float(a["y"]), width, height)
		case "circle":
			err = inside(float(a["cx"]), float(a["cy"]), width, height)
		case "path":
			err = pathInside(a["d"], width, height)
		}
		if err != nil {
			return fmt.Errorf("%s %v: %w", e.Name.Local, a, err)
		}
	}
	if width != 1000 || height < 50 {
		return fmt.Errorf("it is %v x %v", width, height)
	}
	return nil
}

// textInside checks a text's width, roughly: by the letters' usual one.
func textInside(a map[string]string, text string, width float64) error {
	each := 5.8
	if a["class"] == "title" {
		each = 9
	}
	long := each * float64(len([]rune(text)))
	from := float(a["x"])
	switch a["text-anchor"] {
	case "end":
		from -= long
	case "middle":
		from -= long / 2
	}
	if from < 0 || from+long > width {
		return fmt.Errorf("the text %q reaches from %v to %v", text, from, from+long)
	}
	return nil
}

func float(s string) float64 {
	if s == "" {
		return 0
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return v
}

func inside(x, y, width, height float64) error {
	if x < -0.01 || y < -0.01 || x > width+0.01 || y > height+0.01 {
		return fmt.Errorf("(%v, %v) is outside of %v x %v", x, y, width, height)
	}
	return nil
}

var pathStep = regexp.MustCompile(`([MLHVhvlz])([^MLHVhvlz]*)`)

// pathInside follows a path and returns an error where it leaves the picture, or where it is not understood.
func pathInside(d string, width, height float64) error {
	var x, y float64
	steps := pathStep.FindAllStringSubmatch(d, -1)
	length := 0
	for _, s := range steps {
		length += len(s[0])
		var n []float64
		for f := range strings.FieldsSeq(s[2]) {
			n = append(n, float(f))
		}
		switch want := map[string]int{"M": 2, "L": 2, "l": 2, "H": 1, "V": 1, "h": 1, "v": 1, "z": 0}[s[1]]; {
		case len(n) != want:
			return fmt.Errorf("%q has %d numbers", s[0], len(n))
		case s[1] == "M" || s[1] == "L":
			x, y = n[0], n[1]
		case s[1] == "l":
			x, y = x+n[0], y+n[1]
		case s[1] == "H":
			x = n[0]
		case s[1] == "V":
			y = n[0]
		case s[1] == "h":
			x += n[0]
		case s[1] == "v":
			y += n[0]
		}
		if err := inside(x, y, width, height); err != nil {
			return err
		}
	}
	if length != len(d) {
		return fmt.Errorf("%q is not understood", d)
	}
	return nil
}

// TestBarsOverlapNowhere: on one slot, no two jobs' bars of a timeline cover each other: what is drawn is what ran.
func TestBarsOverlapNowhere(t *testing.T) {
	box := regexp.MustCompile(`M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-`)
	for _, run := range threePolicies() {
		type bar struct{ y, from, to float64 }
		var bars []bar
		for _, m := range box.FindAllStringSubmatch(string(report.Timeline([]*sim.Run{run}, report.Window{To: 3 * time.Second})), -1) {
			bars = append(bars, bar{y: float(m[2]), from: float(m[1]), to: float(m[1]) + float(m[3])})
		}
		if len(bars) < 20 {
			t.Fatalf("%d bars under %s", len(bars), run.Policy)
		}
		slices.SortFunc(bars, func(a, b bar) int {
			if a.y != b.y {
				return int(a.y*100 - b.y*100)
			}
			return int(a.from*100 - b.from*100)
		})
		for i := 1; i < len(bars); i++ {
			if bars[i].y == bars[i-1].y && bars[i].from < bars[i-1].to {
				t.Fatalf("under %s, %v covers %v", run.Policy, bars[i], bars[i-1])
			}
		}
	}
}
