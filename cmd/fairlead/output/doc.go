// Package output writes what commands answer: tables for people; JSON, YAML and names for programs.
//
// It owns the formats and their rules. Tables have relative ages, and whatever a server sent is shown without control characters,
// so that a job's error cannot drive a terminal. JSON is the API's own (camelCase names, RFC 3339 times, 64-bit integers as
// strings), except that a JSON payload stands in it as the document that it is, byte for byte: numbers above 2^53 and the order of
// keys survive. Lists are one object with items. YAML is that JSON, with numbers by their text. It refuses colour: tables are
// made to be piped.
package output
