package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
)

// asideSuffix is what a file that cannot be used is called then: it is evidence.
const asideSuffix = ".refused"

// load takes in the file.
func (w *Watcher) load() error {
	if w.cfg.Path == "" {
		return nil
	}
	data, err := os.ReadFile(w.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("gateway: the file of routes: %w", err)
	}
	s, err := route.Decode(data)
	if err == nil && s.Cluster != w.cfg.Cluster {
		err = fmt.Errorf("it is of the cluster %.40q, and this gateway is of %.40q", s.Cluster, w.cfg.Cluster)
	}
	if err != nil {
		aside := w.cfg.Path + asideSuffix
		w.log.Error("the file of routes is not used: nobody is served until control answers", "path", w.cfg.Path, "moved_to", aside, "error", err)
		if err := os.Rename(w.cfg.Path, aside); err != nil {
			return fmt.Errorf("gateway: the file of routes that is not used: %w", err)
		}
		return nil
	}
	w.table, w.saved = s.Table, s.Table
	w.heard, w.savedAt = heardOf(s.Heard, time.Now()), s.Heard.Time()
	if w.heard.IsZero() {
		w.log.Error("the file of routes is from the future: its keys are refused until control answers", "path", w.cfg.Path, "heard", s.Heard.Time())
	}
	return nil
}

// heardOf returns when control was heard of by a file that says at. A clock that was set back would make old keys fresh, so that nothing is
// known of the age of what is from the future: then it is the zero time, as if control had never been heard of.
func heardOf(at cell.Instant, now time.Time) time.Time {
	t := at.Time()
	if t.After(now.Add(clockSlack)) {
		return time.Time{}
	}
	if t.After(now) {
		return now
	}
	return t
}

// keep writes the file as the routes change, until ctx ends, and then once more.
func (w *Watcher) keep(ctx context.Context) {
	if w.cfg.Path == "" {
		return
	}
	for pause(ctx, saveEvery) {
		w.save(heardEvery)
	}
	w.save(0)
}

// save writes the file when the routes are others than it holds, or control was heard of so much later than it says.
func (w *Watcher) save(later time.Duration) {
	w.mu.Lock()
	table, heard := w.table.Abandon(), w.heard
	due := table.Known() && (w.saved == nil || w.saved.Content() != table.Content() || heard.Sub(w.savedAt) > later)
	w.mu.Unlock()
	if !due {
		return
	}
	data := route.Encode(route.Saved{Cluster: w.cfg.Cluster, Heard: cell.InstantOf(heard), Table: table})
	if err := replaceFile(w.cfg.Path, data); err != nil {
		w.log.Error("the routes were not written: after a restart, an older state of them would be served", "error", err)
		return
	}
	w.mu.Lock()
	w.saved, w.savedAt = table, heard
	w.mu.Unlock()
}

// replaceFile makes data the content of the file, so that there is the old or the new one whatever happens.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("gateway: %w", err), os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in the directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
