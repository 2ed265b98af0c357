/* A wall clock that a test moves: the file that MOVED_CLOCK names holds the seconds by which it is off. All other clocks stay. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, id, now);
    const char *path = getenv("MOVED_CLOCK");
    if (failed || id != CLOCK_REALTIME || !path)
        return (int)failed;
    char text[32] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    if (read(file, text, sizeof text - 1) > 0)
        now->tv_sec += atol(text);
    close(file);
    return 0;
}
