/* Fails the n-th call that changes files under a folder, or records them all. Loaded with LD_PRELOAD; see
 * tests/faults.py.
 *
 * All processes that load it share one block of memory, the file named by FAULTS: which kinds of calls count, which
 * call fails and how, and how many were seen. If FAULTS_RECORD names a file, each call that succeeded is appended to
 * it: its kind, an offset or size, the lengths of a path and of the data, then both (of a renamed file both paths).
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
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4, UNLINK = 8, OPEN = 16, TRUNCATE = 32, MKDIR = 64, SHARED = 128 };
enum { ONCE = 0, FROM_THEN_ON = 1, SHORT = 2 };

struct control {
    int64_t kinds, nth, error, mode, seen, failed, failed_kinds;
};
static struct control *control;
static const char *under;
static int record = -1;

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("FAULTS");
    const char *to = getenv("FAULTS_RECORD");
    under = getenv("FAULTS_UNDER");
    if (to && under) record = syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_APPEND | O_CLOEXEC);
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
    if (fails) {
        size_t length = strlen(path);
        if (length > 4 && !strcmp(path + length - 4, "-shm")) kind = SHARED;
        __atomic_or_fetch(&control->failed_kinds, kind, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    }
    return fails;
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static int path_at(int dir, const char *name, char *path) {
    char link[64];
    if (name[0] == '/') return snprintf(path, 2 * PATH_MAX, "%s", name) > 0;
    if (dir == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0) return 0;
    snprintf(path + length, 2 * PATH_MAX - length, "/%s", name);
    return 1;
}

static int counts_fd(int kind, int fd) {
    char path[PATH_MAX];
    if (!control || !(control->kinds & kind)) return 0;
    return path_of(fd, path) && counts(kind, path);
}

static int counts_at(int kind, int dir, const char *name) {
    char path[2 * PATH_MAX];
    if (!control || !(control->kinds & kind)) return 0;
    return path_at(dir, name, path) && counts(kind, path);
}

static void recorded(int kind, int64_t at, const char *path, const void *data, size_t size) {
    int saved = errno;
    if (!strncmp(path, under, strlen(under))) {
        int64_t head[4] = {kind, at, (int64_t)strlen(path), (int64_t)size};
        struct iovec parts[3] = {{head, sizeof head}, {(void *)path, strlen(path)}, {(void *)data, size}};
        syscall(SYS_writev, record, parts, 3); /* one call, so that records of several threads stay whole */
    }
    errno = saved;
}

static void recorded_fd(int kind, int64_t at, int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    if (record >= 0 && path_of(fd, path)) recorded(kind, at, path, data, size);
}

static void recorded_at(int kind, int64_t at, int dir, const char *name, int from, const char *other) {
    char path[2 * PATH_MAX], source[2 * PATH_MAX] = "";
    if (record < 0 || !path_at(dir, name, path) || (other && !path_at(from, other, source))) return;
    recorded(kind, at, path, source, strlen(source));
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL return errno = (int)control->error, -1

#define WRITES(name, declared, shorter, at, ...)                            \
    ssize_t name declared {                                                 \
        if (counts_fd(WRITE, fd)) {                                         \
            if (control->mode != SHORT) FAIL;                               \
            shorter;                                                        \
        }                                                                   \
        ssize_t done = REAL(name)(__VA_ARGS__);                             \
        if (done > 0) recorded_fd(WRITE, at, fd, data, done);               \
        return done;                                                        \
    }
#define POSITION record < 0 ? 0 : lseek(fd, 0, SEEK_CUR) - done
WRITES(write, (int fd, const void *data, size_t size), size = (size + 1) / 2, POSITION, fd, data, size)
WRITES(pwrite, (int fd, const void *data, size_t size, off_t at), size = (size + 1) / 2, at, fd, data, size, at)
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t at), size = (size + 1) / 2, at, fd, data, size, at)

static void recorded_parts(int fd, const struct iovec *parts, ssize_t left, int64_t at) {
    for (int i = 0; record >= 0 && left > 0; i++) {
        size_t size = parts[i].iov_len < (size_t)left ? parts[i].iov_len : (size_t)left;
        recorded_fd(WRITE, at, fd, parts[i].iov_base, size);
        at += size, left -= size;
    }
}

#define WRITES_PARTS(name, declared, at, ...)                               \
    ssize_t name declared {                                                 \
        if (counts_fd(WRITE, fd)) {                                         \
            if (control->mode != SHORT) FAIL;                               \
            count = (count + 1) / 2;                                        \
        }                                                                   \
        ssize_t done = REAL(name)(__VA_ARGS__);                             \
        if (done > 0) recorded_parts(fd, parts, done, at);                  \
        return done;                                                        \
    }
WRITES_PARTS(writev, (int fd, const struct iovec *parts, int count), POSITION, fd, parts, count)
WRITES_PARTS(pwritev, (int fd, const struct iovec *parts, int count, off_t at), at, fd, parts, count, at)
WRITES_PARTS(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), at, fd, parts, count, at)
WRITES_PARTS(pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int flags), at, fd, parts, count, at,
             flags)
WRITES_PARTS(pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags), at, fd, parts, count,
             at, flags)

/* What was copied from another file; that is read again, because the copy may be open for writing only. */
static void recorded_copy(int to, int64_t at, int from, int64_t start, ssize_t size) {
    char *data = record < 0 || size <= 0 ? NULL : malloc(size);
    if (data && pread(from, data, size, start) == size) recorded_fd(WRITE, at, to, data, size);
    free(data);
}

#define COPIES(name, declared, to, at, from, start, ...)                    \
    ssize_t name declared {                                                 \
        if (counts_fd(WRITE, to)) {                                         \
            if (control->mode != SHORT) FAIL;                               \
            size = (size + 1) / 2;                                          \
        }                                                                   \
        ssize_t done = REAL(name)(__VA_ARGS__);                             \
        recorded_copy(to, at, from, start, done);                           \
        return done;                                                        \
    }
#define WHERE(fd, place) (record < 0 ? 0 : ((place) ? *(place) : lseek(fd, 0, SEEK_CUR)) - done)
COPIES(sendfile, (int to, int from, off_t *start, size_t size), to, WHERE(to, (off_t *)NULL), from, WHERE(from, start),
       to, from, start, size)
COPIES(sendfile64, (int to, int from, off64_t *start, size_t size), to, WHERE(to, (off64_t *)NULL), from,
       WHERE(from, start), to, from, start, size)
COPIES(copy_file_range, (int from, off64_t *start, int to, off64_t *at, size_t size, unsigned flags), to, WHERE(to, at),
       from, WHERE(from, start), from, start, to, at, size, flags)

#define ON_FD(kind, name, declared, at, ...)                                \
    int name declared {                                                     \
        if (counts_fd(kind, fd)) FAIL;                                      \
        int done = REAL(name)(__VA_ARGS__);                                 \
        if (!done) recorded_fd(kind, at, fd, "", 0);                        \
        return done;                                                        \
    }
ON_FD(SYNC, fsync, (int fd), 0, fd)
ON_FD(SYNC, fdatasync, (int fd), 0, fd)
ON_FD(TRUNCATE, ftruncate, (int fd, off_t size), size, fd, size)
ON_FD(TRUNCATE, ftruncate64, (int fd, off64_t size), size, fd, size)

int fallocate(int fd, int mode, off_t at, off_t size) { /* room for data: nothing that is read changes */
    if (counts_fd(TRUNCATE, fd)) FAIL;
    return REAL(fallocate)(fd, mode, at, size);
}

#define ON_PATH(kind, name, at, dir, path, here, from, declared, ...)       \
    int name declared {                                                     \
        if (counts_at(kind, dir, path)) FAIL;                               \
        int done = REAL(name)(__VA_ARGS__);                                 \
        if (!done) recorded_at(kind, at, dir, path, here, from);            \
        return done;                                                        \
    }
ON_PATH(RENAME, rename, 0, AT_FDCWD, to, AT_FDCWD, from, (const char *from, const char *to), from, to)
ON_PATH(RENAME, renameat, 0, there, to, here, from, (int here, const char *from, int there, const char *to), here, from,
        there, to)
ON_PATH(RENAME, renameat2, 0, there, to, here, from,
        (int here, const char *from, int there, const char *to, unsigned flags), here, from, there, to, flags)
ON_PATH(RENAME, link, 1, AT_FDCWD, to, AT_FDCWD, from, (const char *from, const char *to), from, to)
ON_PATH(UNLINK, unlink, 0, AT_FDCWD, path, 0, NULL, (const char *path), path)
ON_PATH(UNLINK, unlinkat, 0, dir, path, 0, NULL, (int dir, const char *path, int flags), dir, path, flags)
ON_PATH(UNLINK, rmdir, 0, AT_FDCWD, path, 0, NULL, (const char *path), path)
ON_PATH(MKDIR, mkdir, 0, AT_FDCWD, path, 0, NULL, (const char *path, mode_t mode), path, mode)

#define OPENS(name, dir, declared, ...)                                     \
    int name declared {                                                     \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                       \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT) && counts_at(OPEN, dir, path)) FAIL; \
        int done = REAL(name)(__VA_ARGS__, mode);                           \
        if (done >= 0 && flags & (O_CREAT | O_TRUNC)) recorded_at(OPEN, !!(flags & O_TRUNC), dir, path, 0, NULL); \
        return done;                                                        \
    }
OPENS(open, AT_FDCWD, (const char *path, int flags, ...), path, flags)
OPENS(open64, AT_FDCWD, (const char *path, int flags, ...), path, flags)
OPENS(openat, dir, (int dir, const char *path, int flags, ...), dir, path, flags)
OPENS(openat64, dir, (int dir, const char *path, int flags, ...), dir, path, flags)
