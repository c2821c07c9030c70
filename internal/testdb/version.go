package testdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// VersionEnv is the environment variable that names the version of all servers
// whose [Options.Version] is "".
const VersionEnv = "LOCKSTEP_DB"

// MySQL is the version that stands for MySQL.
const MySQL = "mysql"

// Versions are the versions that 'make setup' can get beside what is installed.
var Versions = []string{"10.5", "10.11", "11.8", MySQL}

// version returns the wanted version, or "" for what is installed.
func (o *Options) version() (string, error) {
	v := o.Version
	if v == "" {
		v = os.Getenv(VersionEnv)
	}
	if v != "" && !slices.Contains(Versions, v) {
		return "", fmt.Errorf("%s is %q: use one of %s, or nothing for the server that is installed", VersionEnv, v, strings.Join(Versions, ", "))
	}
	return v, nil
}

// programs are what a server is run with.
type programs struct {
	server  string
	install string // makes a data directory; "" if the server does
	mysql   bool
}

// findPrograms looks up the programs of a version, or for "" those that are
// installed.
func findPrograms(version string) (programs, error) {
	var p programs
	var err error
	if version == "" {
		if p.server, err = findProgram("mariadbd", "mysqld"); err != nil {
			return p, fmt.Errorf("%w; run 'make setup'", err)
		}
		p.install, err = findProgram("mariadb-install-db", "mysql_install_db")
		return p, err
	}
	dir, err := versionDir(version)
	if err != nil {
		return p, err
	}
	p.server = filepath.Join(dir, "base", "sbin", "mysqld")
	if p.mysql = version == MySQL; !p.mysql {
		p.install = filepath.Join(dir, "base", "bin", "mariadb-install-db")
	}
	return p, nil
}

// versionDir returns where internal/setup/rootfs.sh has put a version. The link
// is resolved here, so that a server stays with its files when the link changes.
func versionDir(version string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(cache, "lockstep", "servers", version))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("version %s is not there: run 'make setup %s=%s'", version, VersionEnv, version)
	}
	return dir, err
}
