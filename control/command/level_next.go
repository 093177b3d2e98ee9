//go:build fairlead_next

package command

// featureLevelMax is that of a release that does not exist: tests of upgrades run it beside the present one.
const featureLevelMax = 2
