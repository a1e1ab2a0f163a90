package diskstore

import (
	"fmt"
	"syscall"
)

// Why a file system deserves care.
const (
	networkCure   = "it is on a network: locks may not keep a second machine out, and an fsync is worth what the server makes of it: use a local disk, or a store that is made for several machines"
	containerCure = "it is a container's own layer, which goes with the container: put the store on a volume"
	foreignCure   = "what an fsync does is up to the program behind it: make sure that it reaches a disk and that locks hold, or use a local disk"
)

// media are the file systems by the numbers of linux/magic.h and statfs(2).
var media = map[uint32]medium{
	0x0000EF53: {name: "ext4"}, // also ext2 and ext3, which are not told apart
	0x58465342: {name: "xfs"},
	0x9123683E: {name: "btrfs"},
	0x2FC12FC1: {name: "zfs"},
	0xF2F52010: {name: "f2fs"},
	0xCA451A4E: {name: "bcachefs"},
	0x01021994: {name: "tmpfs", volatile: true},
	0x858458F6: {name: "ramfs", volatile: true},
	0x794C7630: {name: "overlay", cure: containerCure},
	0x00006969: {name: "nfs", cure: networkCure},
	0x0000517B: {name: "smb", cure: networkCure},
	0xFE534D42: {name: "smb2", cure: networkCure},
	0xFF534D42: {name: "cifs", cure: networkCure},
	0x00C36400: {name: "ceph", cure: networkCure},
	0x0BD00BD0: {name: "lustre", cure: networkCure},
	0x5346414F: {name: "afs", cure: networkCure},
	0x01021997: {name: "9p", cure: foreignCure},
	0x65735546: {name: "fuse", cure: foreignCure},
	0x786F4256: {name: "vboxsf", cure: foreignCure},
}

// mediumOf asks for the file system of a directory; false if that is not known.
func mediumOf(dir string) (medium, bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return medium{}, false
	}
	return mediumNamed(uint32(st.Type)), true
}

func mediumNamed(magic uint32) medium {
	if m, ok := media[magic]; ok {
		return m
	}
	return medium{name: fmt.Sprintf("of type 0x%X", magic), cure: "Punctual does not know it: make sure that it keeps what an fsync reported, and that locks hold"}
}
