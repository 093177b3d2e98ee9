package reconcile

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs testdata/*.txt. A script is blocks, with blank lines between them: lines that start with # are prose, others are commands, and
// what they print follows a line of four dashes.
//
//	cell NAME [kind=dedicated] [replicas=N] [compute=SLOTS] [label=KEY:VALUE] [groups=G hand=H]
//	update CELL compute=SLOTS        change its record
//	delete CELL
//	phase CELL open|cordoned|draining
//	voters CELL NAME...              what is left of the voters after an operator's command
//	agents NAME... of=CELL           register agents, which are up from then on; without of= they are gateways
//	moved NAME ADDRESS               an agent's log has another address
//	up NAME... [log=open] [leads=TERM]
//	hung NAME...                     they are heard of, and do nothing that they are asked for
//	down NAME...                     they are not heard of any more
//	tenant NAME... [compute=SLOTS] [require=KEY:VALUE] [only=CELL]
//	evacuate CELL                    cordoned, and to be empty
//	whales auto                      whales are moved without being asked for
//	demand CELL [hours=N] TENANT:SLOTS...  in each of the last hours
//	advance TENANT to=STATE          its migration, the straight way
//	moves                            as placement is told
//	time D                           all that are up are heard of at its end
//	leader                           another control agent leads: it has heard of nobody
//	step                             what is to be done
//	do                               the same, and it is done
//	standing CELL
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, want, _ := strings.Cut(block+"\n", "----\n")
		var got []string
		commands := false
		for line := range strings.Lines(head) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			commands = true
			if s := c.command(t, line); s != "" {
				got = append(got, s)
			}
		}
		if !commands {
			out = append(out, strings.TrimSpace(head))
			continue
		}
		printed := strings.Join(got, "\n")
		if want = strings.TrimSpace(want); printed != want && !*rewrite {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", head, printed, want)
		}
		out = append(out, strings.TrimSpace(head+"----\n"+printed))
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
