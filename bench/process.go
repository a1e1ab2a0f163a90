package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time that this process has used.
func cpuTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// memory returns the resident memory of this process in bytes: now, and the most since resetPeak or
// else since the start.
func memory() (now, peak float64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	now, err = statusKiB(string(status), "VmRSS:")
	if err != nil {
		return 0, 0, err
	}
	peak, err = statusKiB(string(status), "VmHWM:")
	return now, peak, err
}

func statusKiB(status, name string) (bytes float64, err error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", name)
}

// resetPeak makes the kernel forget how much resident memory this process has had at most (VmHWM).
func resetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// setMemory notes the resident memory of this process, now and at most.
func (r *Result) setMemory() error {
	now, peak, err := memory()
	if err != nil {
		return err
	}
	r.set("rss_bytes", now)
	r.set("rss_peak_bytes", peak)
	return nil
}

// diskUse returns how many bytes the files of a folder take on disk. Files that vanish meanwhile do
// not count.
func diskUse(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		n, err := fileUse(d)
		bytes += n
		return err
	})
	return bytes, err
}

// fileUse returns how many bytes a file takes on disk: none if it has vanished.
func fileUse(d fs.DirEntry) (bytes int64, err error) {
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of %s on disk: %w", d.Name(), err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		bytes = st.Blocks * 512
	}
	return bytes, nil
}

// freeSpace returns how many bytes the disk of a folder has free for a user who is not root.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

// cpuTimeWithChildren returns the CPU time of this process and of the processes that it has
// started, as far as these have ended and were waited for.
func cpuTimeWithChildren() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	own, err := cpuTime()
	return own + time.Duration(u.Utime.Nano()+u.Stime.Nano()), err
}

// usage is the CPU time that was used up to a moment: by this process with those it has started, as
// cpuTimeWithChildren counts it (own), and by all processes of the machine (all).
type usage struct {
	at       time.Time
	own, all time.Duration
}

func takeUsage() (usage, error) {
	own, err := cpuTimeWithChildren()
	if err != nil {
		return usage{}, err
	}
	all, err := machineBusy()
	return usage{time.Now(), own, all}, err
}

// setOthers notes which share of the machine's CPU time, from 0 to 1, other programs have used
// since u was taken.
func (r *Result) setOthers(u usage) error {
	now, err := takeUsage()
	if err != nil {
		return err
	}
	others := (now.all - u.all) - (now.own - u.own)
	r.set("others_cpu", max(0, others.Seconds()/(now.at.Sub(u.at).Seconds()*float64(runtime.NumCPU()))))
	return nil
}

// machineBusy returns the CPU time that all processes of the machine have used, including the time
// that the hypervisor gave to other machines.
func machineBusy() (time.Duration, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return 0, err
	}
	var busy int64
	for i, field := range strings.Fields(line)[1:] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 && i < 8 { // 3 is idle, 4 is waiting for disks; from 8 on are guests, whose time is in that of users too
			busy += ticks
		}
	}
	return time.Duration(busy) * (time.Second / 100), nil // a tick is a hundredth of a second (USER_HZ)
}

// describeMachine describes this machine and the file system of a folder.
func describeMachine(dir string, z sizes) Machine {
	return Machine{
		Kind: "machine", Run: time.Now().UTC().Format(time.RFC3339), Cores: runtime.NumCPU(),
		CPU: fieldOf("/proc/cpuinfo", "model name"), MemoryGiB: memoryGiB(), Kernel: kernel(),
		Go: runtime.Version(), FileSystem: fileSystem(dir), Redis: redisVersion(), Peers: peerVersions(), Asynq: asynqVersion(), BullMQ: bullmqVersion(),
		Postgres: postgresVersion(), River: moduleVersion("github.com/riverqueue/river"), Sizes: z,
	}
}

// fieldOf returns the value of the first line "name : value" with this name in a file of /proc, or
// "unknown" if there is none.
func fieldOf(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func memoryGiB() int {
	var kib int
	if _, err := fmt.Sscanf(fieldOf("/proc/meminfo", "MemTotal"), "%d kB", &kib); err != nil {
		return 0
	}
	return (kib + 1<<19) >> 20
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// fileSystem returns type and device of the mount that holds dir.
func fileSystem(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	data, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "unknown"
	}
	found, best := "unknown", -1
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) <= best {
			continue
		}
		if abs == f[1] || f[1] == "/" || strings.HasPrefix(abs, f[1]+"/") {
			found, best = f[2]+" on "+f[0], len(f[1])
		}
	}
	return found
}
