package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

// fakeApp returns an app whose streams are buffers.
func fakeApp(in string) (a *app, out, talk *bytes.Buffer) {
	out, talk = &bytes.Buffer{}, &bytes.Buffer{}
	return &app{in: strings.NewReader(in), out: out, err: talk, now: time.Now}, out, talk
}

// inEmptyDir makes an empty folder the working one, with no configuration in reach.
func inEmptyDir(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "FAIRLEAD_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("FAIRLEAD_ADDR", "http://127.0.0.1:1") // nobody
}

// TestUsage gives the command what it must refuse by itself: with exit code 2, nothing on standard output, and an error that names what is
// wrong and what would be right.
func TestUsage(t *testing.T) {
	inEmptyDir(t)
	for name, content := range map[string][]byte{"bad.json": []byte("\"\x80\xff\""), "large.bin": make([]byte, 1<<20+1)} {
		if err := os.WriteFile(filepath.Join(".", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"jbo":                                           {[]string{"jbo"}, []string{"Error: fairlead has no command \"jbo\"", "did you mean fairlead job?"}},
		"tenant crate acme --wieght 3":                  {[]string{"tenant", "crate", "acme", "--wieght", "3"}, []string{"fairlead tenant has no command \"crate\"", "did you mean fairlead tenant create?"}},
		"job submit x --cots 3":                         {[]string{"job", "submit", "x", "--cots", "3"}, []string{"fairlead job submit has no flag --cots", "did you mean --cost?"}},
		"job submit x -z":                               {[]string{"job", "submit", "x", "-z"}, []string{"has no flag -z"}},
		"job submit x --cost":                           {[]string{"job", "submit", "x", "--cost"}, []string{"--cost needs a value"}},
		"job submit x --cost many":                      {[]string{"job", "submit", "x", "--cost", "many"}, []string{"--cost cannot be \"many\""}},
		"status -o jason":                               {[]string{"status", "-o", "jason"}, []string{"did you mean json? Use table, wide, json, yaml, name"}},
		"job list --state redy,failed":                  {[]string{"job", "list", "--state", "redy,failed"}, []string{"did you mean ready? Use delayed, ready,"}},
		"job submit x --class urgent":                   {[]string{"job", "submit", "x", "--class", "urgent"}, []string{"use interactive, batch"}},
		"job list extra":                                {[]string{"job", "list", "extra"}, []string{"takes no argument, and got \"extra\""}},
		"job get":                                       {[]string{"job", "get"}, []string{"needs JOB"}},
		"job get a b":                                   {[]string{"job", "get", "a", "b"}, []string{"an argument too many: \"b\""}},
		"job list --limit -1":                           {[]string{"job", "list", "--limit", "-1"}, []string{"--limit is -1, below 0"}},
		"status --lanes 501":                            {[]string{"status", "--lanes", "501"}, []string{"outside 1 to 500"}},
		"status --watch --interval 1ms":                 {[]string{"status", "--watch", "--interval", "1ms"}, []string{"below 10ms"}},
		"job submit":                                    {[]string{"job", "submit"}, []string{"needs an OPERATION"}},
		"job submit ":                                   {[]string{"job", "submit", ""}, []string{"OPERATION is empty"}},
		"job submit send mail":                          {[]string{"job", "submit", "send mail"}, []string{"OPERATION \"send mail\" has \" \" at byte 4"}},
		"job submit x --key *":                          {[]string{"job", "submit", "x", "--key", "*"}, []string{"--key \"*\" has"}},
		"job submit x --key ":                           {[]string{"job", "submit", "x", "--key", ""}, []string{"--key is empty"}},
		"job submit x --cost -5":                        {[]string{"job", "submit", "x", "--cost", "-5"}, []string{"--cost is -5, outside 0 to 1000000000000"}},
		"job submit x --cost 99999999999999999999":      {[]string{"job", "submit", "x", "--cost", "99999999999999999999"}, []string{"--cost cannot be"}},
		"job submit x --payload {\"a\":}":               {[]string{"job", "submit", "x", "--payload", "{\"a\":}"}, []string{"--payload is not JSON: ", "at byte 6"}},
		"job submit x --payload ":                       {[]string{"job", "submit", "x", "--payload", ""}, []string{"--payload is empty"}},
		"job submit x --payload 1 2":                    {[]string{"job", "submit", "x", "--payload", "1 2"}, []string{"--payload is not JSON"}},
		"job submit x --payload-file bad.json":          {[]string{"job", "submit", "x", "--payload-file", "bad.json"}, []string{"--payload is not UTF-8"}},
		"job submit x --payload 1 --data-file bad.json": {[]string{"job", "submit", "x", "--payload", "1", "--data-file", "bad.json"}, []string{"--payload and --data-file cannot stand together"}},
		"job submit x - --payload 1":                    {[]string{"job", "submit", "x", "-", "--payload", "1"}, []string{"give one payload"}},
		"job submit x --content-type text/csv":          {[]string{"job", "submit", "x", "--content-type", "text/csv"}, []string{"there is none"}},
		"job submit x --payload-file nowhere.json":      {[]string{"job", "submit", "x", "--payload-file", "nowhere.json"}, []string{"the payload cannot be read"}},
		"job submit x --delay -3s":                      {[]string{"job", "submit", "x", "--delay", "-3s"}, []string{"--delay is -3s, below 0"}},
		"job submit x --delay 3s --not-before 4s":       {[]string{"job", "submit", "x", "--delay", "3s", "--not-before", "4s"}, []string{"--delay and --not-before cannot stand together"}},
		"job submit x --deadline -1h":                   {[]string{"job", "submit", "x", "--deadline", "-1h"}, []string{"which is past"}},
		"job submit x --deadline tomorrow":              {[]string{"job", "submit", "x", "--deadline", "tomorrow"}, []string{"it is neither a time nor a duration"}},
		"job submit x --timeout 5":                      {[]string{"job", "submit", "x", "--timeout", "5"}, []string{"write it as 90s, 1h30m or 7d"}},
		"job submit x --label colour":                   {[]string{"job", "submit", "x", "--label", "colour"}, []string{"it has no name and value"}},
		"job submit x --label a=1 --label a=2":          {[]string{"job", "submit", "x", "--label", "a=1", "--label", "a=2"}, []string{"was given before"}},
		"job submit x --max-attempts 0":                 {[]string{"job", "submit", "x", "--max-attempts", "0"}, []string{"below 1"}},
		"job submit x --wait-timeout 3s":                {[]string{"job", "submit", "x", "--wait-timeout", "3s"}, []string{"add --wait"}},
		"job submit  --cost -3 --key *":                 {[]string{"job", "submit", "", "--cost", "-3", "--key", "*"}, []string{"the request has 3 faults"}},
		"job wait nothing":                              {[]string{"job", "wait", "nothing"}, []string{"\"nothing\" is not a job's id"}},
		"job wait ab":                                   {[]string{"job", "wait", "ab"}, []string{"too short"}},
		"job wait job_00000001 --timeout 0s":            {[]string{"job", "wait", "job_00000001", "--timeout", "0s"}, []string{"--timeout is 0s, not above 0"}},
		"tenant create acme --weight NaN":               {[]string{"tenant", "create", "acme", "--weight", "NaN"}, []string{"--weight is NaN, outside 0 to 1000000"}},
		"tenant create acme --weight -1":                {[]string{"tenant", "create", "acme", "--weight", "-1"}, []string{"--weight is -1, outside"}},
		"tenant create a b --backlog-jobs-max -1":       {[]string{"tenant", "create", "a b", "--backlog-jobs-max", "-1"}, []string{"the request has 2 faults"}},
		"tenant create acme --backlog-bytes-max 10MB":   {[]string{"tenant", "create", "acme", "--backlog-bytes-max", "10MB"}, []string{"it is not a number of bytes"}},
		"tenant update acme":                            {[]string{"tenant", "update", "acme"}, []string{"there is nothing to change"}},
		"key create --tenant acme":                      {[]string{"key", "create", "--tenant", "acme"}, []string{"--scope is missing", "give some of submit, read, work, operate, admin"}},
		"key create --tenant acme --scope admin":        {[]string{"key", "create", "--tenant", "acme", "--scope", "admin"}, []string{"admin is the platform's"}},
		"key create --scope raed":                       {[]string{"key", "create", "--scope", "raed"}, []string{"did you mean read?"}},
		"key create --scope read --operation x":         {[]string{"key", "create", "--scope", "read", "--operation", "x"}, []string{"no scope work"}},
		"key create --scope read --lifetime 0s":         {[]string{"key", "create", "--scope", "read", "--lifetime", "0s"}, []string{"--lifetime is 0s, not above 0"}},
		"bad UTF-8 argument":                            {[]string{"job", "submit", "x\xff"}, []string{"is not UTF-8"}},
		"bad UTF-8 label":                               {[]string{"job", "submit", "x", "--label", "a=\xff"}, []string{"it is not UTF-8"}},
		"bad UTF-8 payload":                             {[]string{"job", "submit", "x", "--payload", "\"\xff\""}, []string{"--payload is not UTF-8"}},
		"bad UTF-8 content type":                        {[]string{"job", "submit", "x", "--data-file", "bad.json", "--content-type", "\xff"}, []string{"--content-type is not UTF-8"}},
		"bad UTF-8 key":                                 {[]string{"job", "submit", "x", "--key", "\xff"}, []string{"--key "}},
		"bad UTF-8 name":                                {[]string{"tenant", "create", "x", "--display-name", "\xff"}, []string{"--display-name is not UTF-8"}},
		"bad UTF-8 description":                         {[]string{"key", "create", "--scope", "read", "--description", "\xff"}, []string{"--description is not UTF-8"}},
		"large payload":                                 {[]string{"job", "submit", "x", "--data-file", "large.bin"}, []string{"more than 1048576 bytes"}},
		"deep unknown help":                             {[]string{"help", "job", "submti"}, []string{"did you mean fairlead job submit?"}},
		"empty operation filter":                        {[]string{"job", "list", "--operation", ""}, []string{"--operation is empty"}},
		"infinite weight":                               {[]string{"tenant", "update", "acme", "--weight", "Inf"}, []string{"--weight is +Inf"}},
		"small weight":                                  {[]string{"tenant", "update", "acme", "--weight", "0.0001"}, []string{"above 0 but below 0.001"}},
		"worker without operation":                      {[]string{"worker", "--exec", "cat"}, []string{"worker.operation is empty"}},
		"worker without program":                        {[]string{"worker", "--operation", "a"}, []string{"say what runs a job"}},
		"worker with two programs":                      {[]string{"worker", "--operation", "a", "--exec", "cat", "--", "cat"}, []string{"a command stands after --"}},
		"worker with stray argument":                    {[]string{"worker", "--operation", "a", "cat"}, []string{"after --"}},
		"worker over plain http":                        {[]string{"worker", "--operation", "a", "--http", "http://example.com"}, []string{"is not encrypted", "--allow-plain-http"}},
		"worker of no class":                            {[]string{"worker", "--operation", "a", "--exec", "cat", "--class", "bulk"}, []string{"interactive, batch"}},
		"worker without slots":                          {[]string{"worker", "--operation", "a", "--exec", "cat", "--slots", "0"}, []string{"flag --slots: worker.slots is 0, outside 1 to"}},
		"worker with short lease":                       {[]string{"worker", "--operation", "a", "--exec", "cat", "--lease", "1s"}, []string{"worker.lease is 1s, outside 5s"}},
		"worker with bad operation":                     {[]string{"worker", "--operation", "a b", "--exec", "cat"}, []string{"worker.operation \"a b\" has"}},
		"worker without its program":                    {[]string{"worker", "--operation", "a", "--", "no-such-program-anywhere"}, []string{"no-such-program-anywhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, out, talk := fakeApp("")
			if code := a.execute(t.Context(), tc.args); code != failure.Usage {
				t.Errorf("exit code %d, want %d", code, failure.Usage)
			}
			if out.Len() > 0 {
				t.Errorf("standard output has %q", out)
			}
			for _, want := range tc.want {
				if !strings.Contains(talk.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, talk)
				}
			}
		})
	}
}

// TestEveryCommandIsExplained walks the tree: each command has a sentence, a description and an example, and each flag's value that is one of
// a few words is completed.
func TestEveryCommandIsExplained(t *testing.T) {
	a, _, _ := fakeApp("")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() != "help" && c.Parent() != nil && c.Parent().Name() != "completion" {
			if c.Short == "" || c.Long == "" || c.Example == "" {
				t.Errorf("%s lacks a sentence, a description or an example", c.CommandPath())
			}
			if strings.HasSuffix(c.Short, ".") || strings.TrimSpace(c.Short) != c.Short {
				t.Errorf("%s: the sentence %q ends in a dot or a blank", c.CommandPath(), c.Short)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.CommandPath(), f.Name)
			}
			if kind := f.Value.Type(); kind == "word" || kind == "words" {
				complete, ok := c.GetFlagCompletionFunc(f.Name)
				if !ok {
					t.Errorf("%s --%s is not completed", c.CommandPath(), f.Name)
				} else if words, _ := complete(c, nil, ""); len(words) < 2 {
					t.Errorf("%s --%s is completed with %q", c.CommandPath(), f.Name, words)
				}
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(a.rootCommand())
}

// TestExamplesParse runs every example of every command as far as its own flags and arguments: an example must work as pasted.
func TestExamplesParse(t *testing.T) {
	inEmptyDir(t)
	a, _, _ := fakeApp("")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			for _, args := range invocations(line) {
				at, rest, err := a.rootCommand().Find(args)
				if err != nil {
					t.Errorf("%s: %v", line, err)
					continue
				}
				if at.HasSubCommands() {
					t.Errorf("%s: it ends at %s", strings.TrimSpace(line), at.CommandPath())
				}
				if err := at.ParseFlags(rest); err != nil {
					t.Errorf("%s: %v", strings.TrimSpace(line), err)
				}
				if err := at.ValidateArgs(at.Flags().Args()); err != nil {
					t.Errorf("%s: %v", strings.TrimSpace(line), err)
				}
			}
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(a.rootCommand())
}

// invocations returns the arguments of each call of fairlead in a line of shell, as far as examples go: quotes, pipes and substitutions.
func invocations(line string) [][]string {
	var calls [][]string
	var words []string
	var word strings.Builder
	quoted, started := false, false
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	finish := func() {
		end()
		for len(words) > 0 && strings.Contains(words[0], "=") { // a variable before the command
			words = words[1:]
		}
		if len(words) > 0 && words[0] == "fairlead" {
			calls = append(calls, words[1:])
		}
		words = nil
	}
	var outer [][]string // words before each open $(
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			quoted, started = !quoted, true
		case quoted:
			word.WriteByte(c)
		case c == ' ' || c == '\n':
			end()
		case c == '|':
			finish()
		case c == '$' && i+1 < len(line) && line[i+1] == '(', c == '<' && i+1 < len(line) && line[i+1] == '(':
			outer = append(outer, append(words, word.String()+"job_0190a1b2"))
			words, i = nil, i+1
			word.Reset()
			started = false
		case c == ')' && len(outer) > 0:
			finish()
			words, outer = outer[len(outer)-1], outer[:len(outer)-1]
		case c == '>':
			finish()
			return calls
		default:
			word.WriteByte(c)
			started = true
		}
	}
	finish()
	return calls
}
