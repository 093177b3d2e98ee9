package config

import (
	"net"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/cell"
)

// Dev says how fairlead dev runs every role in one process.
type Dev struct {
	// Dir is the state directory; it is made when it is missing, and holds the credentials that other commands use. Default ./fairlead-dev.
	Dir string `mapstructure:"dir"`
	// Listen is the loopback address and port of the API. Default 127.0.0.1:7700; port 0 takes a free one.
	Listen string `mapstructure:"listen"`
	// Policy is how the cell schedules and what tenants are promised: fairlead, fifo to compare with, or a policy file. Default fairlead.
	Policy string `mapstructure:"policy"`
	// SampleTenants are created, each with a key, when the directory is new. Default acme and globex.
	SampleTenants []string `mapstructure:"sample-tenant"`
	// LogLevel is the least level that is logged. Default info.
	LogLevel string `mapstructure:"log-level"`
	// LogFormat is text or json. Default text.
	LogFormat string `mapstructure:"log-format"`
}

// The defaults and bounds of dev.
const (
	DefaultDir       = "./fairlead-dev"
	DefaultListen    = "127.0.0.1:7700"
	DefaultPolicy    = "fairlead"
	DefaultLogLevel  = "info"
	DefaultLogFormat = "text"
	sampleTenantsMax = 100
)

// Policies lists the scheduling policies that have a name.
func Policies() []string { return []string{"fairlead", "fifo"} }

// LogLevels lists the levels of the log.
func LogLevels() []string { return []string{"debug", "info", "warn", "error"} }

// LogFormats lists the formats of the log.
func LogFormats() []string { return []string{"text", "json"} }

// DefaultDev returns the defaults.
func DefaultDev() Dev {
	return Dev{
		Dir: DefaultDir, Listen: DefaultListen, Policy: DefaultPolicy, SampleTenants: []string{"acme", "globex"},
		LogLevel: DefaultLogLevel, LogFormat: DefaultLogFormat,
	}
}

// Validate returns every fault, those of a policy file included.
func (d Dev) Validate() []Fault {
	var faults []Fault
	if d.Dir == "" {
		faults = append(faults, faultf("dev.dir", "give a directory such as "+DefaultDir, "is empty"))
	}
	faults = append(faults, d.validateListen()...)
	_, policyFaults := d.ReadPolicy()
	faults = append(faults, policyFaults...)
	faults = append(faults, validateLog("dev", d.LogLevel, d.LogFormat)...)
	for _, t := range d.SampleTenants {
		if _, err := cell.ParseTenantID("dev.sample-tenant", t); err != nil {
			faults = append(faults, fieldFault(err))
		}
	}
	if len(d.SampleTenants) > sampleTenantsMax {
		faults = append(faults, faultf("dev.sample-tenant", "create the others with: fairlead tenant create", "has %d tenants, of at most %d",
			len(d.SampleTenants), sampleTenantsMax))
	}
	return faults
}

func (d Dev) validateListen() []Fault {
	const remedy = "give an address of this machine alone, such as " + DefaultListen
	host, port, err := net.SplitHostPort(d.Listen)
	if err != nil {
		return []Fault{faultf("dev.listen", remedy, "%.100q is not an address and a port", d.Listen)}
	}
	var faults []Fault
	if !Loopback(host) {
		faults = append(faults, faultf("dev.listen", remedy, "%.100q is not loopback, and dev has neither TLS nor an operator", d.Listen))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		faults = append(faults, faultf("dev.listen", remedy, "%.100q has no port from 0 to 65535", d.Listen))
	}
	return faults
}

func validateLog(section, level, format string) []Fault {
	var faults []Fault
	if !slices.Contains(LogLevels(), level) {
		faults = append(faults, enumFault(section+".log-level", level, LogLevels()))
	}
	if !slices.Contains(LogFormats(), format) {
		faults = append(faults, enumFault(section+".log-format", format, LogFormats()))
	}
	return faults
}
