package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// maxPassword is the size in bytes above which a file holds no password.
const maxPassword = 4096

// givenPasswords are the keys, out of name and its two variants, that a table has.
func givenPasswords(v *values, name string) []string {
	var out []string
	for _, k := range []string{name, name + "_file", name + "_env"} {
		if v.given(k) {
			out = append(out, k)
		}
	}
	return out
}

// password returns the password that a table gives in one of the three ways, of
// which name is the first.
func (r *reader) password(v *values, name string, required bool) Secret {
	given := givenPasswords(v, name)
	switch {
	case len(given) == 0 && required:
		r.problem(v.path(name), "", fmt.Sprintf("this key is required, or else %s_file or %s_env", name, name), noPassword(name)+" if the account has none")
		return ""
	case len(given) == 0:
		return ""
	case len(given) > 1:
		r.problem(v.path(given[1]), "", "the password is given more than once", "keep one of "+strings.Join(given, " and "))
		return ""
	case v.bad[given[0]]:
		return ""
	}
	switch given[0] {
	case name + "_file":
		return r.passwordFile(v, name)
	case name + "_env":
		at, variable := v.path(given[0]), v.str(given[0])
		s, ok := r.env(variable)
		if !ok {
			r.problem(at, shownEnv(variable), "this environment variable is not set", "")
		} else if s == "" {
			r.problem(at, shownEnv(variable), "this environment variable is empty", noPassword(name)+" instead if the account has no password")
		}
		return Secret(s)
	}
	raw, _ := v.raw[name].(string)
	if raw != "" && !strings.Contains(raw, "${") && r.mode&0o007 != 0 {
		r.warn(v.path(name), mask, fmt.Sprintf("every user of this host may read the password: the mode of the file is %04o", r.mode.Perm()),
			"chmod o= "+r.path+", or use "+name+"_file")
	}
	s, _ := v.value[name].(Secret)
	return s
}

// noPassword is how to say that there is none.
func noPassword(name string) string { return "write " + name + ` = ""` }

func (r *reader) passwordFile(v *values, name string) Secret {
	key := name + "_file"
	at, printed, path := v.path(key), v.printed(key), r.resolve(v.str(key))
	f, err := openRegular(path)
	if err != nil {
		r.problem(at, printed, err.Error(), "")
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Mode()&0o077 != 0 {
		r.problem(at, printed, fmt.Sprintf("others than its owner have access to this file: its mode is %04o", info.Mode().Perm()), "chmod 600 "+path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	s := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case err != nil:
		r.problem(at, printed, "this file cannot be read: "+reason(err), "")
	case len(text) > maxPassword:
		r.problem(at, printed, fmt.Sprintf("this file has more than %d bytes", maxPassword), "put nothing but the password in it")
	case s == "":
		r.problem(at, printed, "this file is empty", noPassword(name)+" instead if the account has no password")
	}
	return Secret(s)
}

// openRegular opens a file that is neither a directory nor a device nor a pipe, on
// which opening or reading might hang. The error names neither file nor operation.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.New("this file cannot be read: " + reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("this is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.New("this file cannot be read: " + reason(err))
	}
	return f, nil
}

// reason strips the operation and the path off an error.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// shownEnv is the value of password_env for messages.
func shownEnv(name string) string {
	if name != strings.ToUpper(name) {
		return mask
	}
	return strconv.Quote(name)
}
