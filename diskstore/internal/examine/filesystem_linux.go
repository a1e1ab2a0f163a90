package examine

import (
	"fmt"
	"syscall"
)

// Why a file system deserves a warning.
const (
	networkRemedy   = "it is on a network: locks may not keep a second machine out, and an fsync is worth what the server makes of it: use a local disk, or a store that is made for several machines"
	containerRemedy = "it is a container's own layer, which goes with the container: put the store on a volume"
	foreignRemedy   = "what an fsync does is up to the program behind it: make sure that it reaches a disk and that locks hold, or use a local disk"
)

// fileSystems are the file systems by the number that statfs(2) reports. The numbers are those of
// linux/magic.h, or of the file system itself where that header does not have it, as with ZFS.
var fileSystems = map[uint32]fileSystem{
	0x0000EF53: {name: "ext4"}, // also ext2 and ext3, which are not told apart
	0x58465342: {name: "xfs"},
	0x9123683E: {name: "btrfs"},
	0x2FC12FC1: {name: "zfs"},
	0xF2F52010: {name: "f2fs"},
	0xCA451A4E: {name: "bcachefs"},
	0x01021994: {name: "tmpfs", volatile: true},
	0x858458F6: {name: "ramfs", volatile: true},
	0x794C7630: {name: "overlay", remedy: containerRemedy},
	0x00006969: {name: "nfs", remedy: networkRemedy},
	0x0000517B: {name: "smb", remedy: networkRemedy},
	0xFE534D42: {name: "smb2", remedy: networkRemedy},
	0xFF534D42: {name: "cifs", remedy: networkRemedy},
	0x00C36400: {name: "ceph", remedy: networkRemedy},
	0x0BD00BD0: {name: "lustre", remedy: networkRemedy},
	0x5346414F: {name: "afs", remedy: networkRemedy},
	0x01021997: {name: "9p", remedy: foreignRemedy},
	0x65735546: {name: "fuse", remedy: foreignRemedy},
	0x786F4256: {name: "vboxsf", remedy: foreignRemedy},
}

// fileSystemOf asks for the file system of a directory; false if that is not known.
func fileSystemOf(dir string) (fileSystem, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fileSystem{}, false
	}
	return fileSystemNamed(uint32(st.Type)), true
}

func fileSystemNamed(magic uint32) fileSystem {
	if m, ok := fileSystems[magic]; ok {
		return m
	}
	return fileSystem{name: fmt.Sprintf("of type 0x%X", magic), remedy: "Punctual does not know it: make sure that it keeps what an fsync reported, and that locks hold"}
}
