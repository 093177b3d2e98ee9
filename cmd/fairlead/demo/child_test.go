package demo

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestAttached: a child tells its parent's goodbye from its parent's end, and does nothing without instructions.
func TestAttached(t *testing.T) {
	for name, tc := range map[string]struct {
		rest   string
		orphan bool
	}{
		"goodbye":        {"stop\n", false},
		"end":            {"", true},
		"half a goodbye": {"sto", true},
		"other word":     {"go\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			var ins workerInstructions
			in := io.MultiReader(strings.NewReader(`{"name":"w","slots":3}`+"\n"), strings.NewReader(tc.rest))
			ctx, err := attached(t.Context(), in, &ins)
			if err != nil || ins.Name != "w" || ins.Slots != 3 {
				t.Fatalf("instructions %+v, %v", ins, err)
			}
			<-ctx.Done()
			if got := errors.Is(context.Cause(ctx), errOrphaned); got != tc.orphan {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
		})
	}
	for _, in := range []string{"", "\n", "stop\n", "{"} {
		if _, err := attached(t.Context(), strings.NewReader(in), &workerInstructions{}); err == nil {
			t.Errorf("%q are instructions", in)
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	w := &tail{}
	for range 3 {
		if _, err := io.WriteString(w, strings.Repeat("x", tailBytesMax)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, "end\n"); err != nil {
		t.Fatal(err)
	}
	if got := w.String(); len(got) > tailBytesMax || !strings.HasSuffix(got, "xend") {
		t.Errorf("%d bytes that end in %q", len(got), got[max(0, len(got)-8):])
	}
}

func TestBeginning(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "  12\n": "12", "a\nb\n": "a", "\xff": "\uFFFD", strings.Repeat("y", 2*outputMax): strings.Repeat("y", outputMax),
	} {
		if got := beginning(in); got != want {
			t.Errorf("the beginning of %q is %q, want %q", in, got, want)
		}
	}
}
