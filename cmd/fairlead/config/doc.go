// Package config is what the command can be told, and by whom: flags before the environment, before a file, before the defaults.
//
// It owns one plain struct for each concern, with its defaults and a Validate that reports every fault, and the one reading of the
// sources: [Load] reads them once into typed values and remembers where each came from. A key has one path, such as worker.slots, in a
// file; one variable, FAIRLEAD_WORKER_SLOTS; and mostly one flag. It refuses files with a key that it does not know or a value of
// the wrong type, naming the line and the nearest key. Nothing here is re-read or changed while the process runs, and tenants, plans
// and keys are no configuration: they are objects behind the API.
package config
