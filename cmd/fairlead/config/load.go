package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Config is everything that can be configured. In a file, a client's keys stand at the top and the others under their name.
type Config struct {
	Client Client `mapstructure:",squash"`
	Worker Worker `mapstructure:"worker"`
	Dev    Dev    `mapstructure:"dev"`
	Agent  Agent  `mapstructure:"agent"`
}

// Default returns the defaults.
func Default() Config {
	return Config{Client: DefaultClient(), Worker: DefaultWorker(), Dev: DefaultDev(), Agent: DefaultAgent()}
}

// EnvPrefix begins the name of every variable.
const EnvPrefix = "FAIRLEAD"

// EnvFile is the variable that names the file.
const EnvFile = EnvPrefix + "_CONFIG"

// FileName is the name of a file in the working directory that is read without being named.
const FileName = "fairlead.yaml"

// fileBytesMax bounds a file: far more than every key with its comment, and little to read.
const fileBytesMax = 1 << 20

// delimiter separates the parts of a key inside viper. A dot would forbid keys that have one.
const delimiter = "::"

const flagAnnotation = "fairlead_config_key"

// BindFlag says that flag gives the value of key, as in worker.slots. It panics when there is no such key.
func BindFlag(flag *pflag.Flag, key string) {
	if _, ok := schema()[key]; !ok {
		panic("config: no key " + key + " for the flag " + flag.Name)
	}
	if flag.Annotations == nil {
		flag.Annotations = make(map[string][]string)
	}
	flag.Annotations[flagAnnotation] = []string{key}
}

// Loaded is the configuration as it was read. It is not changed any more.
type Loaded struct {
	Config Config
	// File is the path of the file that was read; empty when there is none.
	File string
	// FileFound is true when the file was not named but found in the working directory.
	FileFound bool

	sources map[string]string // by key; a key without one has its default
}

// Load reads flags that [BindFlag] bound and that were given, the environment, and a file: the one named file, or else by FAIRLEAD_CONFIG,
// or else fairlead.yaml in the working directory or config.yaml in fairlead's folder of the user's configuration. It returns a
// *[FaultsError] with every fault of form: unknown keys, wrong types. Whether values are within their bounds is for [Loaded.Check].
func Load(flags *pflag.FlagSet, file string) (*Loaded, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter(delimiter), viper.ExperimentalBindStruct())
	l := &Loaded{Config: Default(), sources: make(map[string]string)}
	faults, err := l.readFile(v, file)
	if err != nil {
		return nil, err
	}
	faults = append(faults, l.readEnv(v)...)
	l.readFlags(v, flags)
	if len(faults) > 0 {
		return nil, &FaultsError{Faults: faults}
	}
	hooks := mapstructure.ComposeDecodeHookFunc(durationHook, mapstructure.StringToSliceHookFunc(","))
	// A slice is replaced, never merged into the default's elements.
	zero := func(c *mapstructure.DecoderConfig) { c.ZeroFields = true }
	if err := v.UnmarshalExact(&l.Config, viper.DecodeHook(hooks), zero); err != nil {
		return nil, &FaultsError{Faults: []Fault{{Source: l.File, Problem: err.Error()}}}
	}
	return l, nil
}

// Check returns nil when there is no fault, and otherwise a *[FaultsError] with all of them, each with the source of its value.
func (l *Loaded) Check(faults ...[]Fault) error {
	var all []Fault
	for _, fs := range faults {
		for _, f := range fs {
			if f.Source == "" {
				f.Source = l.sources[f.Key]
			}
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &FaultsError{Faults: all}
}

// Source says where the value of key came from, as in: flag --slots. It returns the empty text for a default.
func (l *Loaded) Source(key string) string { return l.sources[key] }

// FromFlag reports whether the value of key came from a flag.
func (l *Loaded) FromFlag(key string) bool { return strings.HasPrefix(l.sources[key], sourceFlag) }

const (
	sourceFlag = "flag --"
	sourceEnv  = "env "
)

func (l *Loaded) readFile(v *viper.Viper, file string) ([]Fault, error) {
	path, found, err := findFile(file)
	if err != nil || path == "" {
		return nil, err
	}
	text, err := readBounded(path, fileBytesMax)
	if err != nil {
		return nil, &FaultsError{Faults: []Fault{{Problem: "the configuration file cannot be read: " + err.Error(), Remedy: "name another with --config"}}}
	}
	l.File, l.FileFound = path, found
	lines, faults := parseFile(path, text)
	for key, line := range lines {
		l.sources[key] = fmt.Sprintf("%s:%d", path, line)
	}
	if len(faults) > 0 {
		return faults, nil
	}
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(text)); err != nil {
		return []Fault{{Source: path, Problem: err.Error()}}, nil //nolint:nilerr // a fault among others, which are all told at once
	}
	return nil, nil
}

// findFile returns the path of the file to read, empty for none, and whether it was found in the working directory without being named.
func findFile(file string) (path string, found bool, err error) {
	if file == "" {
		file = os.Getenv(EnvFile)
	}
	if file != "" {
		return file, false, nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if home := os.Getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".config")
	}
	candidates := []string{FileName}
	if dir != "" {
		candidates = append(candidates, filepath.Join(dir, "fairlead", "config.yaml"))
	}
	for i, c := range candidates {
		_, err := os.Stat(c)
		if err == nil {
			return c, i == 0, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return "", false, fmt.Errorf("looking for the configuration: %w", err)
		}
	}
	return "", false, nil
}

// readBounded reads a file of at most so many bytes.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, nil
}

func (l *Loaded) readEnv(v *viper.Viper) []Fault {
	v.SetEnvPrefix(EnvPrefix)
	v.SetEnvKeyReplacer(strings.NewReplacer(delimiter, "_", "-", "_"))
	v.AutomaticEnv()
	var faults []Fault
	for _, k := range Keys() {
		value := os.Getenv(k.Env())
		if value == "" {
			continue
		}
		l.sources[k.Path] = sourceEnv + k.Env()
		if problem := k.checkText(value); problem != "" {
			faults = append(faults, Fault{Key: k.Path, Source: l.sources[k.Path], Problem: problem})
		}
	}
	return faults
}

// readFlags sets what flags were given. Their texts have been checked by the flags themselves.
func (l *Loaded) readFlags(v *viper.Viper, flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	flags.Visit(func(f *pflag.Flag) {
		bound := f.Annotations[flagAnnotation]
		if len(bound) == 0 {
			return
		}
		key := bound[0]
		l.sources[key] = sourceFlag + f.Name
		var value any = f.Value.String()
		if s, ok := f.Value.(pflag.SliceValue); ok {
			value = s.GetSlice()
		}
		v.Set(strings.ReplaceAll(key, ".", delimiter), value)
	})
}

func durationHook(from, to reflect.Type, data any) (any, error) {
	if from.Kind() != reflect.String || to != reflect.TypeFor[time.Duration]() {
		return data, nil
	}
	return ParseDuration(reflect.ValueOf(data).String())
}
