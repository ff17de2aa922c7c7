/* Makes one file-system call of this process fail, by LD_PRELOAD: the n-th below one folder, as a fault says.

   faulty_files.py compiles, loads and steers it. Only paths below the folder count, and descriptors that were opened
   there; libraries in C and C++ are seen as Python is. What a fault cannot hit (a full disk does not fail a read) is not
   counted for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <dirent.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NONE, IO_ERROR, NO_SPACE, FULL, SHORT, SHORT_THEN_FULL, KILL_BEFORE, KILL_AFTER };
enum kind { LOOK = 1, CHANGE = 2, GROW = 4 };
#define MOST 4096

static enum fault chosen;
static int at, count, struck;
static char folder[4096], last[4200];
static unsigned char ours[MOST];

void faulty_arm(const char *path, int number, int fault) {
    snprintf(folder, sizeof folder, "%s", path);
    last[0] = 0;
    count = struck = 0;
    at = number;
    chosen = fault;
}
int faulty_count(void) { return count; }
int faulty_struck(void) { return struck; }
const char *faulty_call(void) { return last; }

static int below(const char *path) {
    size_t length = strlen(folder);
    return length && path && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}
static int is_ours(int descriptor) { return descriptor >= 0 && descriptor < MOST && ours[descriptor]; }
static int belongs(int parent, const char *path) {
    return path && path[0] == '/' ? below(path) : parent != AT_FDCWD && is_ours(parent);
}
static int note(int descriptor, int is) {
    if (descriptor >= 0 && descriptor < MOST) ours[descriptor] = is;
    return descriptor;
}

/* Returns 0 to go on, -1 to fail with errno set, 1 to write half. */
static int strikes(const char *name, const char *path, int kind) {
    int counts = chosen == IO_ERROR || chosen == NONE ? 1
        : chosen == KILL_BEFORE || chosen == KILL_AFTER ? kind != LOOK
        : chosen == SHORT || chosen == SHORT_THEN_FULL ? strstr(name, "write") != NULL : (kind & GROW) != 0;
    /* Once a disk is full it is full for all that grows. */
    if (chosen == SHORT_THEN_FULL && struck) counts = (kind & GROW) != 0;
    if (!counts) return 0;
    int number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    int again = (chosen == FULL || chosen == SHORT_THEN_FULL) && number > at;
    if (chosen == NONE || (number != at && !again)) return 0;
    if (number == at) {
        struck = 1;
        snprintf(last, sizeof last, "%s %s", name, path ? path : "");
    }
    if (chosen == KILL_BEFORE) kill(getpid(), SIGKILL);
    if (number == at && (chosen == SHORT || chosen == SHORT_THEN_FULL)) return 1;
    if (chosen == KILL_AFTER) return 2;
    errno = chosen == IO_ERROR ? EIO : ENOSPC;
    return -1;
}
static void die_if(int how) { if (how == 2) kill(getpid(), SIGKILL); }

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        if (!below(path)) return note(real(path, flags, mode), 0); \
        int how = strikes("open", path, flags & O_CREAT ? CHANGE | GROW : LOOK); \
        if (how == -1) return -1; \
        int made = note(real(path, flags, mode), 1); die_if(how); return made; }
OPENS(open) OPENS(open64)
#define OPENS_AT(name) \
    int name(int parent, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        if (!belongs(parent, path)) return note(real(parent, path, flags, mode), 0); \
        int how = strikes("openat", path, flags & O_CREAT ? CHANGE | GROW : LOOK); \
        if (how == -1) return -1; \
        int made = note(real(parent, path, flags, mode), 1); die_if(how); return made; }
OPENS_AT(openat) OPENS_AT(openat64)
#define OPENS_STREAM(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(FILE *, name, const char *, const char *); \
        int how = below(path) ? strikes("fopen", path, mode[0] == 'r' ? LOOK : CHANGE | GROW) : 0; \
        if (how == -1) return NULL; \
        FILE *made = real(path, mode); \
        if (made) note(fileno(made), below(path)); \
        die_if(how); return made; }
OPENS_STREAM(fopen) OPENS_STREAM(fopen64)

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, const char *);
    return below(path) && strikes("opendir", path, LOOK) == -1 ? NULL : real(path);
}

/* A write may be short; every other call of a descriptor happens or does not. */
#define WRITES(name, declared, given, half) \
    ssize_t name declared { \
        REAL(ssize_t, name, int, const void *, size_t, off_t); \
        int how = is_ours(descriptor) ? strikes(#name, "", CHANGE | GROW) : 0; \
        if (how == -1) return -1; \
        if (how == 1 && length > 1) length = half; \
        ssize_t done = real given; die_if(how); return done; }
WRITES(write, (int descriptor, const void *data, size_t length), (descriptor, data, length, 0), length / 2)
WRITES(pwrite, (int descriptor, const void *data, size_t length, off_t place), (descriptor, data, length, place), length / 2)
WRITES(pwrite64, (int descriptor, const void *data, size_t length, off_t place), (descriptor, data, length, place), length / 2)
ssize_t writev(int descriptor, const struct iovec *parts, int number) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    int how = is_ours(descriptor) ? strikes("writev", "", CHANGE | GROW) : 0;
    if (how == -1) return -1;
    ssize_t done = real(descriptor, parts, how == 1 && number > 1 ? 1 : number); die_if(how); return done;
}

#define OF_DESCRIPTOR(type, name, kind, declared, given, ...) \
    type name declared { \
        REAL(type, name, __VA_ARGS__); \
        int how = is_ours(descriptor) ? strikes(#name, "", kind) : 0; \
        if (how == -1) return -1; \
        type done = real given; die_if(how); return done; }
OF_DESCRIPTOR(ssize_t, read, LOOK, (int descriptor, void *data, size_t length), (descriptor, data, length), int, void *, size_t)
OF_DESCRIPTOR(ssize_t, pread, LOOK, (int descriptor, void *data, size_t length, off_t place), (descriptor, data, length, place), int, void *, size_t, off_t)
OF_DESCRIPTOR(ssize_t, pread64, LOOK, (int descriptor, void *data, size_t length, off_t place), (descriptor, data, length, place), int, void *, size_t, off_t)
OF_DESCRIPTOR(int, fsync, CHANGE | GROW, (int descriptor), (descriptor), int)
OF_DESCRIPTOR(int, fdatasync, CHANGE | GROW, (int descriptor), (descriptor), int)
OF_DESCRIPTOR(int, ftruncate, CHANGE, (int descriptor, off_t length), (descriptor, length), int, off_t)
OF_DESCRIPTOR(int, ftruncate64, CHANGE, (int descriptor, off_t length), (descriptor, length), int, off_t)
OF_DESCRIPTOR(int, fchmod, CHANGE, (int descriptor, mode_t mode), (descriptor, mode), int, mode_t)
OF_DESCRIPTOR(int, flock, LOOK, (int descriptor, int how_), (descriptor, how_), int, int)
OF_DESCRIPTOR(int, fstat, LOOK, (int descriptor, struct stat *into), (descriptor, into), int, struct stat *)
OF_DESCRIPTOR(int, fstat64, LOOK, (int descriptor, struct stat64 *into), (descriptor, into), int, struct stat64 *)
int close(int descriptor) {
    REAL(int, close, int);
    int how = is_ours(descriptor) ? strikes("close", "", CHANGE) : 0, error = errno;
    int done = real(note(descriptor, 0));
    die_if(how);
    /* The descriptor is gone after a failure too, as Linux has it. */
    if (how == -1) errno = error;
    return how == -1 ? -1 : done;
}

#define OF_PATH(name, kind, declared, given, ...) \
    int name declared { \
        REAL(int, name, __VA_ARGS__); \
        int how = below(path) ? strikes(#name, path, kind) : 0; \
        if (how == -1) return -1; \
        int done = real given; die_if(how); return done; }
OF_PATH(stat, LOOK, (const char *path, struct stat *into), (path, into), const char *, struct stat *)
OF_PATH(stat64, LOOK, (const char *path, struct stat64 *into), (path, into), const char *, struct stat64 *)
OF_PATH(lstat, LOOK, (const char *path, struct stat *into), (path, into), const char *, struct stat *)
OF_PATH(lstat64, LOOK, (const char *path, struct stat64 *into), (path, into), const char *, struct stat64 *)
OF_PATH(access, LOOK, (const char *path, int mode), (path, mode), const char *, int)
OF_PATH(unlink, CHANGE, (const char *path), (path), const char *)
OF_PATH(rmdir, CHANGE, (const char *path), (path), const char *)
OF_PATH(mkdir, CHANGE | GROW, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
OF_PATH(chmod, CHANGE, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
OF_PATH(rename, CHANGE | GROW, (const char *path, const char *to), (path, to), const char *, const char *)
OF_PATH(link, CHANGE | GROW, (const char *path, const char *to), (path, to), const char *, const char *)
#define OF_PARENT(name, kind, declared, given, ...) \
    int name declared { \
        REAL(int, name, __VA_ARGS__); \
        int how = belongs(parent, path) ? strikes(#name, path, kind) : 0; \
        if (how == -1) return -1; \
        int done = real given; die_if(how); return done; }
OF_PARENT(fstatat, LOOK, (int parent, const char *path, struct stat *into, int flags), (parent, path, into, flags), int, const char *, struct stat *, int)
OF_PARENT(fstatat64, LOOK, (int parent, const char *path, struct stat64 *into, int flags), (parent, path, into, flags), int, const char *, struct stat64 *, int)
OF_PARENT(faccessat, LOOK, (int parent, const char *path, int mode, int flags), (parent, path, mode, flags), int, const char *, int, int)
OF_PARENT(unlinkat, CHANGE, (int parent, const char *path, int flags), (parent, path, flags), int, const char *, int)
OF_PARENT(mkdirat, CHANGE | GROW, (int parent, const char *path, mode_t mode), (parent, path, mode), int, const char *, mode_t)
OF_PARENT(fchmodat, CHANGE, (int parent, const char *path, mode_t mode, int flags), (parent, path, mode, flags), int, const char *, mode_t, int)
OF_PARENT(renameat, CHANGE | GROW, (int parent, const char *path, int other, const char *to), (parent, path, other, to), int, const char *, int, const char *)
