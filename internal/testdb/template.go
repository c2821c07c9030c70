package testdb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// A template is a fresh data directory, which takes seconds to make and is the
// same for all servers of one version. It is kept in the user's cache directory
// across runs, under a name made of all that it depends on.

var template struct {
	mu   sync.Mutex
	dirs map[programs]string
}

// templateDir returns the template for a server program, and makes it if need
// be. Only one process at a time makes one.
func templateDir(ctx context.Context, p programs) (string, error) {
	template.mu.Lock()
	defer template.mu.Unlock()
	if dir, ok := template.dirs[p]; ok {
		if _, err := os.Stat(dir); err == nil {
			return dir, nil
		}
	}
	dir, err := findTemplate(ctx, p)
	if err != nil {
		return "", err
	}
	if template.dirs == nil {
		template.dirs = map[programs]string{}
	}
	template.dirs[p] = dir
	return dir, nil
}

func findTemplate(ctx context.Context, p programs) (_ string, err error) {
	version, err := exec.CommandContext(ctx, p.server, "--no-defaults", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", p.server, err)
	}
	install, args := p.install, append([]string{
		"--no-defaults",
		"--auth-root-authentication-method=normal",
		"--skip-test-db",
		"--skip-name-resolve",
		"--force", // the name of this machine need not resolve
		"--innodb-log-file-size=" + logFileSize,
	}, userArgs()...)
	if p.mysql {
		install, args = p.server, append([]string{
			"--no-defaults",
			"--initialize-insecure",
			"--innodb-redo-log-capacity=" + logFileSize,
		}, userArgs()...)
	}

	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(string(version) + strings.Join(args, "\n")))
	dir := filepath.Join(cache, hex.EncodeToString(sum[:8]))

	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, install, append(args, "--datadir="+fresh)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%s: %w\n%s", install, err, lastLines(string(out), 25)), os.RemoveAll(fresh))
	}
	return dir, os.Rename(fresh, dir)
}

// lockFile waits for the lock on a file, which it makes if there is none.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f.Close, nil
}

// copyTree copies a directory of plain files. Where the file system can share
// the blocks of two files, they are shared.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if entry.IsDir() {
			return os.Mkdir(target, 0o700)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		return copyFile(path, target)
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// cacheDir is where things stay that the next run uses again.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir() // no home
	}
	cache = filepath.Join(cache, "lockstep-testdb")
	return cache, os.MkdirAll(cache, 0o700)
}
