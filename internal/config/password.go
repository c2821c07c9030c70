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

// password returns the password that a table gives in one of the three ways.
func (r *reader) password(v *values, required bool) Secret {
	var given []string
	for _, name := range []string{"password", "password_file", "password_env"} {
		if v.given(name) {
			given = append(given, name)
		}
	}
	switch {
	case len(given) == 0 && required:
		r.problem(v.path("password"), "", "this key is required, or else password_file or password_env", `write password = "" if the account has none`)
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
	case "password_file":
		return r.passwordFile(v)
	case "password_env":
		name := v.str("password_env")
		s, ok := r.env(name)
		if !ok {
			r.problem(v.path("password_env"), shownEnv(v.str("password_env")), "this environment variable is not set", "")
		} else if s == "" {
			r.problem(v.path("password_env"), shownEnv(v.str("password_env")), "this environment variable is empty",
				`write password = "" instead if the account has no password`)
		}
		return Secret(s)
	}
	raw, _ := v.raw["password"].(string)
	if raw != "" && !strings.Contains(raw, "${") && r.mode&0o007 != 0 {
		r.warn(v.path("password"), mask, fmt.Sprintf("every user of this host may read the password: the mode of the file is %04o", r.mode.Perm()),
			"chmod o= "+r.path+", or use password_file")
	}
	s, _ := v.value["password"].(Secret)
	return s
}

func (r *reader) passwordFile(v *values) Secret {
	at, printed, path := v.path("password_file"), v.printed("password_file"), r.resolve(v.str("password_file"))
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
		r.problem(at, printed, "this file is empty", `write password = "" instead if the account has no password`)
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
