package output

// Format is how a command's answer is written.
type Format string

// The formats.
const (
	FormatTable Format = "table" // aligned columns for people
	FormatWide  Format = "wide"  // the same with every column
	FormatJSON  Format = "json"  // one object, or {"items": [...]}
	FormatYAML  Format = "yaml"  // the same as YAML
	FormatName  Format = "name"  // ids alone, one a line, for other commands' arguments
)

// Formats lists the formats by name.
func Formats() []string {
	return []string{string(FormatTable), string(FormatWide), string(FormatJSON), string(FormatYAML), string(FormatName)}
}
