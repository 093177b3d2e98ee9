//go:build race

package engine_test

// underRace says that everything takes several times as long.
const underRace = true
