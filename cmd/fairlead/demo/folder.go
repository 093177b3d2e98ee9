package demo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// The bounds of a folder.
const (
	foldersMax    = 200    // tenants: each has a connection of its own
	filesMax      = 20_000 // in all
	folderTimeout = time.Hour
)

// Skipped counts what in a folder is no job.
type Skipped struct {
	Hidden  int `json:"hidden"`  // a name that begins with a dot, and a folder's whole content
	Special int `json:"special"` // symbolic links, devices, sockets and pipes
	Loose   int `json:"loose"`   // files that are in no tenant's folder
}

// scan returns the files below a folder as a workload: each sub-folder is a tenant, however deep its files are. The tenant with the most
// files comes first; the others submit when its jobs are in.
func scan(c Config) (*workload, Skipped, error) {
	var skipped Skipped
	root, err := os.OpenRoot(c.Folder)
	if err != nil {
		return nil, skipped, dirFault(fmt.Sprintf("cannot be read: %v", cause(err)), "give a folder with a sub-folder for each tenant")
	}
	defer root.Close() //nolint:errcheck // nothing was written
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, skipped, dirFault(fmt.Sprintf("cannot be read: %v", cause(err)), "give a folder with a sub-folder for each tenant")
	}
	var folders []folder
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), "."):
			skipped.Hidden++
		case e.IsDir():
			f, err := list(root.FS(), e.Name(), &skipped)
			if err != nil {
				return nil, skipped, err
			}
			folders = append(folders, f)
		case e.Type().IsRegular():
			skipped.Loose++
		default:
			skipped.Special++
		}
	}
	w, err := folderWorkload(folders)
	if err != nil {
		return nil, skipped, err
	}
	w.folder = c.Folder
	return w, skipped, checkProgram(c.Program)
}

// folder is one tenant's.
type folder struct {
	name  string
	files []file
}

type file struct {
	path  string
	bytes int64
}

// list returns the files of a tenant, in the order of their names.
func list(root fs.FS, name string, skipped *Skipped) (folder, error) {
	f := folder{name: name}
	err := fs.WalkDir(root, name, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), "."):
			skipped.Hidden++
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir():
		case !e.Type().IsRegular():
			skipped.Special++
		default:
			var size int64
			if info, err := e.Info(); err == nil { // else it has just gone, which its job will tell
				size = info.Size()
			}
			if f.files = append(f.files, file{path: at, bytes: size}); len(f.files) > filesMax {
				return fs.SkipAll
			}
		}
		return nil
	})
	if err != nil {
		return f, dirFault(fmt.Sprintf("cannot be read to its end: %v", err), "make its folders readable, or give another")
	}
	return f, nil
}

// folderWorkload makes the jobs of the tenants that have files.
func folderWorkload(folders []folder) (*workload, error) {
	if len(folders) == 0 {
		return nil, dirFault("has no sub-folder", "make one for each tenant, such as acme/ and globex/, and put files into them")
	}
	folders = slices.DeleteFunc(folders, func(f folder) bool { return len(f.files) == 0 })
	if len(folders) == 0 {
		return nil, dirFault("has no file in any of its sub-folders", "put files into them: each is a job")
	}
	total := 0
	for _, f := range folders {
		total += len(f.files)
	}
	if len(folders) > foldersMax {
		return nil, dirFault(fmt.Sprintf("has %d sub-folders, of at most %d", len(folders), foldersMax), "give a smaller one")
	}
	if total > filesMax {
		return nil, dirFault(fmt.Sprintf("has %d files or more, of at most %d", total, filesMax), "give a smaller one")
	}
	slices.SortStableFunc(folders, func(a, b folder) int {
		return cmp.Or(cmp.Compare(len(b.files), len(a.files)), cmp.Compare(a.name, b.name))
	})
	w := &workload{timeout: folderTimeout}
	taken := make(map[cell.TenantID]bool)
	for i, f := range folders {
		id := tenantID(f.name, taken)
		taken[id] = true
		w.tenants = append(w.tenants, tenant{id: id, name: f.name})
		for _, file := range f.files {
			w.jobs = append(w.jobs, job{tenant: i, bytes: file.bytes, order: order{N: len(w.jobs), Path: file.path}})
		}
	}
	return w, nil
}

// tenantID is the folder's name where that can be a tenant's id that nobody has, and a numbered one otherwise. admin and worker are names of
// the server's own keys.
func tenantID(name string, taken map[cell.TenantID]bool) cell.TenantID {
	id, err := cell.ParseTenantID("folder", name)
	bad := err != nil || name == "admin" || name == "worker"
	for n := 1; bad || taken[id]; n++ {
		id, bad = cell.TenantID(fmt.Sprintf("folder-%d", n)), false
	}
	return id
}

// checkProgram refuses a program that the shell cannot find, where that can be told before any job fails for it: when the command begins
// with a plain word.
func checkProgram(program string) error {
	if program == "" {
		return nil
	}
	if runtime.GOOS == "windows" {
		return &cell.FieldError{Field: "--exec", Problem: "needs a POSIX shell, which this system has not", Remedy: "leave it out to count lines and bytes"}
	}
	words := strings.Fields(program)
	if len(words) == 0 {
		return &cell.FieldError{Field: "--exec", Problem: "is blank", Remedy: "give a command such as 'gzip -c | wc -c'"}
	}
	if strings.ContainsFunc(words[0], notPlain) {
		return nil
	}
	// command -v knows the shell's own words, too.
	check := &exec.Cmd{Path: shell, Args: []string{shell, "-c", `command -v "$1" > /dev/null`, shell, words[0]}}
	if err := check.Run(); err != nil {
		if _, ran := errors.AsType[*exec.ExitError](err); ran {
			return &cell.FieldError{
				Field: "--exec", Problem: fmt.Sprintf("names %.100q, which is no program here", words[0]),
				Remedy: "install it, or give its path",
			}
		}
		return fmt.Errorf("the shell: %w", err)
	}
	return nil
}

func notPlain(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-", r)
}

func dirFault(problem, remedy string) error {
	return &cell.FieldError{Field: "--dir", Problem: problem, Remedy: remedy}
}

// cause is err without the name of the system call, which says nothing to people.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
