package diskstore

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/punctualmq/punctual"
)

// TestBoundDirectory: a directory that is also mounted at a second place is still one directory,
// for the process that owns it and for others.
func TestBoundDirectory(t *testing.T) {
	if os.Getenv("PUNCTUAL_BOUND") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestBoundDirectory$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), "PUNCTUAL_BOUND=1")
		// The child has mounts of its own, and the right to make some.
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Skipf("no namespaces here: %v", err)
		} else if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	parent := t.TempDir()
	dir, second := filepath.Join(parent, "store"), filepath.Join(parent, "second")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(second, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(dir, second, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("no mounts here: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(second, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s := openAt(t, dir, nil)
	ids := pushAll(t, s, "owner", 10)
	for _, name := range []string{second, filepath.Join(second, ".")} {
		if again, err := Open(name, nil); !errors.Is(err, punctual.ErrLocked) {
			t.Errorf("open of %s as %s: %v, want ErrLocked", dir, name, err)
			if err == nil {
				closeStore(t, again)
			}
		}
	}
	mustBeRefused(t, inAnotherProcess(t, second, 1))
	mustHold(t, s, ids)
}
