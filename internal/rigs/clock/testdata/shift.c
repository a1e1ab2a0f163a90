// This library stands between a server and the system's clock. It adds to the time what a file says: a number of microseconds, as 8 bytes
// in the order of the machine.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift;

__attribute__((constructor)) static void map_shift(void) {
  const char *path = getenv("PUNCTUAL_CLOCK_SHIFT");
  int fd = path ? open(path, O_RDONLY) : -1;
  if (fd < 0) return;
  void *at = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) shift = at;
  close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
  int result = (int)syscall(SYS_clock_gettime, clock, ts);
  if (result != 0 || shift == NULL || clock != CLOCK_REALTIME) return result;
  int64_t us = ts->tv_sec * INT64_C(1000000) + ts->tv_nsec / 1000 + *shift;
  ts->tv_nsec = us % 1000000 * 1000 + ts->tv_nsec % 1000;
  ts->tv_sec = us / 1000000;
  return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  (void)zone;
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
  tv->tv_sec = ts.tv_sec;
  tv->tv_usec = ts.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (at != NULL) *at = ts.tv_sec;
  return ts.tv_sec;
}
