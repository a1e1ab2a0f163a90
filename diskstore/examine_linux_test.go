package diskstore

import (
	"os"
	"syscall"
	"testing"

	"github.com/punctualmq/punctual/storekit"
)

func TestExamineInMemory(t *testing.T) {
	var st syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &st); err != nil || st.Type != 0x01021994 {
		t.Skipf("/dev/shm is no tmpfs here: type 0x%X, %v", st.Type, err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "punctual-test-")
	if err != nil {
		t.Skipf("/dev/shm takes no files here: %v", err)
	}
	defer os.RemoveAll(dir)
	fs := examined(t, dir, nil)
	mustFind(t, fs, "file system", storekit.SeverityBad, "tmpfs")
	mustFind(t, fs, "durability", storekit.SeverityBad, "volatile")
}
