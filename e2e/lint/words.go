package lint

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A wordLaw forbids a pattern in committed text.
type wordLaw struct {
	pattern *regexp.Regexp
	goOnly  bool
	text    string
}

// wordLaws returns what must not stand in committed files. The patterns are written so that they do not match themselves.
func wordLaws() []wordLaw {
	hosts := "proxy[.]golang|sum[.]golang|(deb|security|ftp)[.]debian|registry[.]npmjs|pypi|index[.]docker|registry-1[.]docker"
	return []wordLaw{
		{
			pattern: regexp.MustCompile(`\b(` + hosts + `)[.](org|io)\b`),
			text:    "names the host of a package registry: which one a user has is the user's choice",
		},
		{
			pattern: regexp.MustCompile(`(^|[^\w./-])/(root|home/\w+|Users/\w+)/`),
			text:    "names a path of one machine",
		},
		{
			pattern: regexp.MustCompile(`(//|/\*).*\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`),
			goOnly:  true,
			text:    "unfinished: finish it, or say in prose what is not done and what happens then",
		},
	}
}

// CheckWords checks every committed text file below root.
func CheckWords(ctx context.Context, root string) ([]Finding, error) {
	names, err := committed(ctx, root)
	if err != nil {
		return nil, err
	}
	laws := wordLaws()
	var out []Finding
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // Deleted, but not yet committed so.
		}
		if err != nil {
			return nil, err
		}
		out = append(out, checkText(laws, name, text)...)
	}
	return out, nil
}

// checkText checks one file. Binary files are left out: what they hold was not written by anyone.
func checkText(laws []wordLaw, name string, text []byte) []Finding {
	if bytes.IndexByte(text, 0) >= 0 {
		return nil
	}
	var out []Finding
	number := 0
	for line := range bytes.Lines(text) {
		number++
		for _, law := range laws {
			if law.goOnly && path.Ext(name) != ".go" {
				continue
			}
			if law.pattern.Match(line) {
				out = append(out, Finding{fmt.Sprintf("%s:%d", name, number), law.text})
			}
		}
	}
	return out
}

// committed lists what git has, or will have after `git add .`; without git, as in an unpacked archive, it lists every file.
func committed(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list, err := cmd.Output()
	if err == nil {
		// Opening the index makes `go test` run again when it changed, which its cache cannot know otherwise.
		if f, err := os.Open(filepath.Join(root, ".git", "index")); err == nil {
			_ = f.Close()
		}
		names := strings.Split(strings.TrimRight(string(list), "\x00"), "\x00")
		return slices.DeleteFunc(names, func(n string) bool { return n == "" }), nil
	}
	var names []string
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		rel, err := filepath.Rel(root, name)
		names = append(names, filepath.ToSlash(rel))
		return err
	})
	return names, err
}
