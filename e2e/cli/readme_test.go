package cli

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/e2e/harness"
)

// readme is the README of the tree, as a reader of it sees it.
func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shellBlocks returns the code blocks for a shell under a heading, up to the next heading.
func shellBlocks(t *testing.T, text, heading string) []string {
	t.Helper()
	_, section, ok := strings.Cut(text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("the README has no heading %q", heading)
	}
	if end := regexp.MustCompile(`(?m)^#{2,3} `).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%q shows no shell", heading)
	}
	return blocks
}

// terminal is a reader's terminal, in the folder that the README has them work in.
type terminal struct {
	t   *testing.T
	dir string
	env []string
}

func (r *terminal) command(script string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", script)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

// open pastes a block that goes on until it is interrupted, and returns what shows what it has printed so far.
func (r *terminal) open(block string) (p *harness.Process, printed func() string) {
	r.t.Helper()
	cmd := r.command("exec " + strings.TrimSpace(block))
	screen, err := os.CreateTemp(r.t.TempDir(), "screen-")
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout = screen
	p = harness.Start(r.t, strings.TrimSpace(block), cmd)
	if err := screen.Close(); err != nil { // the process has its own
		r.t.Fatal(err)
	}
	return p, func() string {
		b, err := os.ReadFile(screen.Name())
		if err != nil {
			r.t.Fatal(err)
		}
		return string(b)
	}
}

// paste pastes a block and returns what it prints.
func (r *terminal) paste(block string) string {
	r.t.Helper()
	var errs strings.Builder
	cmd := r.command("set -e\n" + block)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FAIRLEAD_") }), r.env...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("%v of:\n%s\n%s%s", err, block, out, errs.String())
	}
	return string(out)
}

// TestReadme pastes what the README shows under "Use it" and "With curl", with another port than the usual one, and looks at what comes of it.
func TestReadme(t *testing.T) {
	harness.NeedSignals(t)
	for _, program := range []string{"sh", "sed", "curl", "tee", "wc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not there", program)
		}
	}
	binary := harness.Binary(t)
	listen := freeAddress(t)
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(readme(t), "7700", port)
	r := &terminal{t: t, dir: t.TempDir(), env: []string{
		"PATH=" + filepath.Dir(binary) + string(os.PathListSeparator) + os.Getenv("PATH"), "FAIRLEAD_DEV_LISTEN=" + listen,
	}}

	// "Use it": what runs until it is interrupted has a terminal of its own, as the README says.
	for _, block := range shellBlocks(t, text, "## Use it") {
		block = regexp.MustCompile(`(?m)^go install .*\n`).ReplaceAllString(block, "")
		switch {
		case strings.HasPrefix(block, "fairlead dev"):
			p, printed := r.open(block)
			harness.Eventually(t, awaitMax, "fairlead dev says that it is ready", func() bool {
				select {
				case <-p.Ended():
					t.Fatalf("fairlead dev ended:\n%s", p.Output())
				default:
				}
				return strings.Contains(printed(), "Fairlead is ready at http://"+listen)
			})
		case strings.HasPrefix(block, "fairlead worker"):
			if strings.Contains(block, "python3") {
				r.greet(block)
				continue
			}
			r.open(block)
		default:
			out := r.paste(block)
			for _, want := range []string{"succeeded", "Result:", "count", "CLASS"} {
				if !strings.Contains(out, want) {
					t.Errorf("%s\nprints no %q:\n%s", block, want, out)
				}
			}
		}
	}
	r.curl(shellBlocks(t, text, "### With curl"))
}

// greet pastes the worker in Python, where there is one, and has it greet somebody.
func (r *terminal) greet(block string) {
	r.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		r.t.Log("python3 is not there: its worker is not tried")
		return
	}
	r.open(block)
	if out := r.paste(`fairlead job submit greet --payload '{"name": "Ada"}' --wait --wait-timeout 60s`); !strings.Contains(out, `{"hello": "Ada"}`) {
		r.t.Errorf("%s\nanswers:\n%s", block, out)
	}
}

// curl pastes the lines for curl one after the other, in one shell, and checks each answer.
func (r *terminal) curl(blocks []string) {
	r.t.Helper()
	const mark = "-- next block --"
	answers := strings.Split(r.paste(strings.Join(blocks, "echo; echo '"+mark+"'\n")), mark)
	if len(answers) != len(blocks) || len(answers) != 4 {
		r.t.Fatalf("%d answers for %d blocks: %q", len(answers), len(blocks), answers)
	}
	var submitted struct{ JobID, State string }
	var leased struct {
		Leases []struct {
			JobID, Token string
			Payload      struct{ JSON string }
		}
	}
	var reported struct {
		Results []struct {
			State     string
			Rejection json.RawMessage
		}
	}
	for i, into := range []any{&submitted, &leased, &reported} {
		if err := json.Unmarshal([]byte(answers[i+1]), into); err != nil {
			r.t.Fatalf("%v in %q, the answer of\n%s", err, answers[i+1], blocks[i+1])
		}
	}
	if submitted.JobID == "" || len(leased.Leases) != 1 || leased.Leases[0].JobID != submitted.JobID ||
		leased.Leases[0].Payload.JSON != `{"order": 9007199254740993}` {
		r.t.Errorf("submitted %+v, leased %+v", submitted, leased)
	}
	if len(reported.Results) != 1 || reported.Results[0].State != "JOB_STATE_SUCCEEDED" || reported.Results[0].Rejection != nil {
		r.t.Errorf("reported %+v", reported)
	}
	if out := r.paste("fairlead job get " + submitted.JobID + " -o json"); !strings.Contains(out, `"json": {"exported": true}`) {
		r.t.Errorf("the job is %s", out)
	}
}

// freeAddress returns a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	s := harness.NewServer(t, harness.Config{Dir: filepath.Join(t.TempDir(), "unused")})
	return strings.TrimPrefix(s.Addr(), "http://")
}
