package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// Key is one thing that can be set.
type Key struct {
	Path string // as in worker.slots

	typ   reflect.Type
	index []int
}

// Env returns the name of the key's variable.
func (k Key) Env() string {
	return EnvPrefix + "_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k.Path))
}

// Keys lists every key in the order of the structs.
func Keys() []Key {
	return appendKeys(nil, reflect.TypeFor[Config](), "", nil)
}

func appendKeys(keys []Key, t reflect.Type, prefix string, index []int) []Key {
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		at := append(slices.Clone(index), i)
		switch {
		case option == "squash":
			keys = appendKeys(keys, f.Type, prefix, at)
		case f.Type.Kind() == reflect.Struct:
			keys = appendKeys(keys, f.Type, prefix+name+".", at)
		default:
			keys = append(keys, Key{Path: prefix + name, typ: f.Type, index: at})
		}
	}
	return keys
}

func schema() map[string]Key {
	m := make(map[string]Key)
	for _, k := range Keys() {
		m[k.Path] = k
	}
	return m
}

// Setting is a key with its value.
type Setting struct {
	Key    string
	Value  string // as it would stand in a file; secrets are masked
	Source string // empty for the default
}

// Settings lists every key with its value and where that came from.
func (l *Loaded) Settings() []Setting {
	var settings []Setting
	for _, k := range Keys() {
		settings = append(settings, Setting{Key: k.Path, Value: text(reflect.ValueOf(l.Config).FieldByIndex(k.index)), Source: l.sources[k.Path]})
	}
	return settings
}

func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return FormatDuration(x)
	case []string:
		return strings.Join(x, ",")
	default:
		return fmt.Sprint(x)
	}
}

// checkText says what is wrong with s as a value of k, or returns the empty text.
func (k Key) checkText(s string) string {
	if !utf8.ValidString(s) {
		return "is not UTF-8"
	}
	var err error
	switch {
	case k.typ == reflect.TypeFor[time.Duration]():
		_, err = ParseDuration(s)
		if err != nil {
			return "is " + err.Error()
		}
	case k.typ.Kind() == reflect.Int:
		if _, err = strconv.Atoi(s); err != nil {
			return fmt.Sprintf("is %.40q, not a whole number", s)
		}
	case k.typ.Kind() == reflect.Bool:
		if _, err = strconv.ParseBool(s); err != nil {
			return fmt.Sprintf("is %.40q, not true or false", s)
		}
	}
	return ""
}

// parseFile returns the line of each key of a file, and every fault of form.
func parseFile(path string, content []byte) (map[string]int, []Fault) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, []Fault{{Source: path, Problem: strings.TrimPrefix(err.Error(), "yaml: "), Remedy: "write it as YAML"}}
	}
	w := &fileWalk{path: path, keys: schema(), lines: make(map[string]int)}
	if len(document.Content) > 0 {
		w.mapping(document.Content[0], "")
	}
	return w.lines, w.faults
}

// fileWalk reads a file's tree along the schema.
type fileWalk struct {
	path   string
	keys   map[string]Key
	lines  map[string]int
	faults []Fault
}

func (w *fileWalk) fault(n *yaml.Node, key, problem, remedy string) {
	w.faults = append(w.faults, Fault{Key: key, Source: fmt.Sprintf("%s:%d", w.path, n.Line), Problem: problem, Remedy: remedy})
}

func (w *fileWalk) mapping(n *yaml.Node, prefix string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			w.fault(n, strings.TrimSuffix(prefix, "."), "is not a mapping of keys to values", "write it as key: value")
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		key := prefix + name.Value
		if _, twice := w.lines[key]; twice {
			w.fault(name, key, "stands twice", "leave one")
			continue
		}
		k, isKey := w.keys[key]
		switch {
		case isKey:
			w.lines[key] = name.Line
			w.value(k, value)
		case w.isSection(key + "."):
			w.lines[key] = name.Line
			w.mapping(value, key+".")
		default:
			w.fault(name, key, "is not a key", w.unknownRemedy(key))
		}
	}
}

func (w *fileWalk) isSection(prefix string) bool {
	for path := range w.keys {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

func (w *fileWalk) unknownRemedy(key string) string {
	var paths, siblings []string
	parent := key[:strings.LastIndexByte(key, '.')+1]
	for _, k := range Keys() {
		if strings.HasSuffix(k.Path, "."+key) {
			return "did you mean " + k.Path + "?" // the right name in the wrong place
		}
		paths = append(paths, k.Path)
		if rest, ok := strings.CutPrefix(k.Path, parent); ok {
			name, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(siblings, parent+name) {
				siblings = append(siblings, parent+name)
			}
		}
	}
	if near, ok := Nearest(key, append(siblings, paths...)); ok {
		return "did you mean " + near + "?"
	}
	return "use " + strings.Join(siblings, ", ")
}

func (w *fileWalk) value(k Key, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if k.typ.Kind() == reflect.Slice {
		if n.Kind == yaml.SequenceNode {
			for _, item := range n.Content {
				if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
					w.fault(item, k.Path, "has an item that is not a text", "write it as [a, b]")
				}
			}
			return
		}
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			w.fault(n, k.Path, "is not a list", "write it as [a, b]")
		}
		return
	}
	if n.Kind != yaml.ScalarNode {
		w.fault(n, k.Path, "is not a single value", "write it as "+k.Path[strings.LastIndexByte(k.Path, '.')+1:]+": value")
		return
	}
	if n.Tag == "!!null" {
		w.fault(n, k.Path, "has no value", "give it one or leave the key out")
		return
	}
	if problem := k.checkText(n.Value); problem != "" {
		w.fault(n, k.Path, problem, "")
	}
}
