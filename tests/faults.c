/* Fails the n-th call that changes files under a folder. Loaded with LD_PRELOAD; see tests/faults.py.
 *
 * All processes that load it share one block of memory, the file named by FAULTS: which kinds of calls count, which
 * call fails and how, and how many were seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4, UNLINK = 8, OPEN = 16, TRUNCATE = 32, MKDIR = 64 };
enum { ONCE = 0, FROM_THEN_ON = 1, SHORT = 2 };

struct control {
    int64_t kinds, nth, error, mode, seen, failed;
};
static struct control *control;
static const char *under;

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("FAULTS");
    under = getenv("FAULTS_UNDER");
    if (!file || !under) return;
    int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *block = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (block != MAP_FAILED) control = block;
    syscall(SYS_close, fd);
}

static int counts(int kind, const char *path) {
    if (!control || !(control->kinds & kind) || strncmp(path, under, strlen(under))) return 0;
    int64_t number = __atomic_add_fetch(&control->seen, 1, __ATOMIC_SEQ_CST);
    int fails = number == control->nth || (control->mode == FROM_THEN_ON && number > control->nth);
    if (fails) __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    return fails;
}

static int counts_fd(int kind, int fd) {
    char link[64], path[PATH_MAX];
    if (!control || !(control->kinds & kind)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return counts(kind, path);
}

static int counts_at(int kind, int dir, const char *name) {
    char link[64], path[2 * PATH_MAX];
    if (!control || !(control->kinds & kind)) return 0;
    if (name[0] == '/') return counts(kind, name);
    if (dir == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0) return 0;
    snprintf(path + length, sizeof path - length, "/%s", name);
    return counts(kind, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL return errno = (int)control->error, -1

#define WRITES(name, declared, shorter, ...)                                \
    ssize_t name declared {                                                 \
        if (counts_fd(WRITE, fd)) {                                         \
            if (control->mode != SHORT) FAIL;                               \
            shorter;                                                        \
        }                                                                   \
        return REAL(name)(__VA_ARGS__);                                     \
    }
WRITES(write, (int fd, const void *data, size_t size), size = (size + 1) / 2, fd, data, size)
WRITES(pwrite, (int fd, const void *data, size_t size, off_t at), size = (size + 1) / 2, fd, data, size, at)
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t at), size = (size + 1) / 2, fd, data, size, at)
WRITES(writev, (int fd, const struct iovec *parts, int count), count = (count + 1) / 2, fd, parts, count)

#define ON_FD(kind, name, declared, ...)                                    \
    int name declared {                                                     \
        if (counts_fd(kind, fd)) FAIL;                                      \
        return REAL(name)(__VA_ARGS__);                                     \
    }
ON_FD(SYNC, fsync, (int fd), fd)
ON_FD(SYNC, fdatasync, (int fd), fd)
ON_FD(TRUNCATE, ftruncate, (int fd, off_t size), fd, size)
ON_FD(TRUNCATE, ftruncate64, (int fd, off64_t size), fd, size)
ON_FD(TRUNCATE, fallocate, (int fd, int mode, off_t at, off_t size), fd, mode, at, size)

#define ON_PATH(kind, name, dir, path, declared, ...)                       \
    int name declared {                                                     \
        if (counts_at(kind, dir, path)) FAIL;                               \
        return REAL(name)(__VA_ARGS__);                                     \
    }
ON_PATH(RENAME, rename, AT_FDCWD, to, (const char *from, const char *to), from, to)
ON_PATH(RENAME, renameat, there, to, (int here, const char *from, int there, const char *to), here, from, there, to)
ON_PATH(RENAME, renameat2, there, to, (int here, const char *from, int there, const char *to, unsigned flags), here,
        from, there, to, flags)
ON_PATH(RENAME, link, AT_FDCWD, to, (const char *from, const char *to), from, to)
ON_PATH(UNLINK, unlink, AT_FDCWD, path, (const char *path), path)
ON_PATH(UNLINK, unlinkat, dir, path, (int dir, const char *path, int flags), dir, path, flags)
ON_PATH(UNLINK, rmdir, AT_FDCWD, path, (const char *path), path)
ON_PATH(MKDIR, mkdir, AT_FDCWD, path, (const char *path, mode_t mode), path, mode)

#define OPENS(name, dir, declared, ...)                                     \
    int name declared {                                                     \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                       \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT) && counts_at(OPEN, dir, path)) FAIL; \
        return REAL(name)(__VA_ARGS__, mode);                               \
    }
OPENS(open, AT_FDCWD, (const char *path, int flags, ...), path, flags)
OPENS(open64, AT_FDCWD, (const char *path, int flags, ...), path, flags)
OPENS(openat, dir, (int dir, const char *path, int flags, ...), dir, path, flags)
OPENS(openat64, dir, (int dir, const char *path, int flags, ...), dir, path, flags)
