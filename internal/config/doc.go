// Package config reads and checks the configuration of lockstepd.
//
// [Load] and [Parse] promise three things. A file that they accept is complete:
// every default is filled in, every value is within its bounds, passwords are
// read, and what a server inherits from its cluster is already in the server. A
// file that they refuse is refused with every problem at once, each with its
// line, key and remedy. And no message, and no printed form of a result, holds a
// password.
//
// They do not promise that the settings make sense together in time: whether a
// failcount is safe for an interval and a timeout is arithmetic that package
// locks does. Nor do they connect to anything.
//
// One table, in schema.go and schema_operations.go, says which keys there are. Reading, checking, the
// suggestions for misspelt keys and the configuration reference ([Reference],
// [Markdown]) all come from it.
package config
