package examine

import "testing"

func TestFileSystemByNumber(t *testing.T) {
	for _, c := range []struct {
		magic             uint32
		name              string
		warning, volatile bool
	}{
		{0xEF53, "ext4", false, false},
		{0x58465342, "xfs", false, false},
		{0x01021994, "tmpfs", false, true},
		{0x6969, "nfs", true, false},
		{0xFE534D42, "smb2", true, false},
		{0x794C7630, "overlay", true, false},
		{0x12345678, "of type 0x12345678", true, false},
	} {
		if m := fileSystemNamed(c.magic); m.name != c.name || (m.remedy != "") != c.warning || m.volatile != c.volatile {
			t.Errorf("file system 0x%X is %+v; want name %s, warning %t, volatile %t", c.magic, m, c.name, c.warning, c.volatile)
		}
	}
}
