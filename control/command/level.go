//go:build !fairlead_next

package command

// featureLevelMax rises with a release that writes what the one before cannot read.
const featureLevelMax = 1
