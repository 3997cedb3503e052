/*
 * Runs a program and kills it just before the Nth step below a folder, or has that step fail. A step is a system call that
 * changes or syncs files, including those of the database.
 *
 * Usage: steps kill|fail|record|record-ext4|record-unsynced N FOLDER LOG PROGRAM [ARGUMENT...]
 *
 * With N = 0 there is no fault. LOG gets the process id, and then one line for each step: the call and its path.
 * A step that fails is not carried out; the program gets EIO.
 *
 * `record` has no fault. LOG gets the process id, and then one record for each step that has succeeded, and for each answer of
 * HTTP that reports success, in the order in which they happened: no two steps are carried out at once. A record is a line
 *     NAME NUMBER LENGTH_OF_PATH LENGTH_OF_SECOND_PATH LENGTH_OF_DATA
 * and then both paths, the data and a line feed. NUMBER is the offset of a write, the length after a truncation, and the time of a
 * file in nanoseconds. What is written through shared memory is not recorded. With `record-ext4` the program sees ext4 wherever it asks
 * for a file system below the folder; with `record-unsynced` it may not sync a file system as a whole, and gets EPERM.
 *
 * Exits with the status of the program; 137 if it was killed; 77 if processes can't be traced or their calls not be changed.
 *
 * A seccomp filter stops a thread at these calls only, and ptrace reports them before they are carried out: when the process
 * is killed there, the call has no effect. Other threads may continue for a moment, as in a power cut.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* Which arguments of a call name the file. */
enum where {
    DESCRIPTOR, /* the first is a file descriptor */
    PATH,       /* the first is a path */
    AT,         /* the first is a folder, the second a path in it */
    NEW_AT,     /* the same, only with O_EXCL, which creates a file, or with O_TMPFILE, which creates one without a name */
    TO,         /* the second is the new path */
    TO_AT,      /* the third is the folder and the fourth the new path in it */
    SOCKET,     /* the first is a socket; recorded only */
    KIND,       /* the first is a file descriptor, for the kind of whose file system is asked; changed only */
};

static const struct call {
    long number;
    const char *name;
    enum where where;
} calls[] = {
    {SYS_write, "write", DESCRIPTOR},
    {SYS_writev, "write", DESCRIPTOR},
    {SYS_pwrite64, "write", DESCRIPTOR},
    {SYS_pwritev, "write", DESCRIPTOR},
    {SYS_copy_file_range, "write", DESCRIPTOR},
    {SYS_fallocate, "allocate", DESCRIPTOR},
    {SYS_ftruncate, "truncate", DESCRIPTOR},
    {SYS_fsync, "fsync", DESCRIPTOR},
    {SYS_fdatasync, "fsync", DESCRIPTOR},
    {SYS_syncfs, "syncfs", DESCRIPTOR},
    {SYS_utimensat, "date", DESCRIPTOR},
    {SYS_openat, "create", NEW_AT},
    {SYS_mkdirat, "mkdir", AT},
    {SYS_unlinkat, "unlink", AT},
    {SYS_linkat, "link", TO_AT},
    {SYS_renameat2, "rename", TO_AT},
#ifdef SYS_renameat
    {SYS_renameat, "rename", TO_AT},
#endif
#ifdef SYS_rename
    {SYS_rename, "rename", TO},
#endif
#ifdef SYS_unlink
    {SYS_unlink, "unlink", PATH},
#endif
#ifdef SYS_rmdir
    {SYS_rmdir, "unlink", PATH},
#endif
#ifdef SYS_mkdir
    {SYS_mkdir, "mkdir", PATH},
#endif
    {SYS_sendto, "answer", SOCKET},
    {SYS_fstatfs, "kind", KIND},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void install_filter(int records, int denies, int changes_kind) {
    struct sock_filter filter[2 * CALLS + 2];
    int at = 0;
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].where == SOCKET && !records) continue;
        if (calls[i].where == KIND && !changes_kind) continue;
        int is_denied = calls[i].number == SYS_syncfs && denies;
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, is_denied ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_TRACE);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {at, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(77);
}

/* The path of a file descriptor of a thread; empty if it has none. */
static void path_of(pid_t thread, int descriptor, char *path, size_t size) {
    char link[64];
    if (descriptor == AT_FDCWD) snprintf(link, sizeof link, "/proc/%d/cwd", thread);
    else snprintf(link, sizeof link, "/proc/%d/fd/%d", thread, descriptor);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
}

/* Reads a string from a thread's memory. */
static void read_string(pid_t thread, unsigned long address, char *text, size_t size) {
    size_t length = 0;
    while (length + sizeof(long) < size) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKDATA, thread, (void *)(address + length), 0);
        if (errno) break;
        memcpy(text + length, &word, sizeof word);
        if (memchr(&word, 0, sizeof word)) return;
        length += sizeof word;
    }
    text[length] = 0;
}

static void path_in(pid_t thread, int folder, unsigned long address, char *path, size_t size) {
    char name[4096];
    read_string(thread, address, name, sizeof name);
    path[0] = 0;
    if (name[0] != '/') {
        path_of(thread, folder, path, size);
        strncat(path, "/", size - strlen(path) - 1);
    }
    strncat(path, name, size - strlen(path) - 1);
}

/* Whether `openat` creates a file without a name. */
static int is_unnamed(const __uint64_t args[6]) {
    return (args[2] & O_TMPFILE) == O_TMPFILE;
}

/* The path of a file that gets another name: /proc names an open file. */
static void linked_path(pid_t thread, int folder, unsigned long address, char *path, size_t size) {
    int descriptor;
    path_in(thread, folder, address, path, size);
    if (sscanf(path, "/proc/self/fd/%d", &descriptor) == 1) path_of(thread, descriptor, path, size);
}

/* The call that a stopped thread is about to make, its arguments, and the path of its file. */
static const struct call *call_of(pid_t thread, int records, __uint64_t args[6], char *path, size_t size) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return NULL;
    const struct call *call = NULL;
    for (int i = 0; i < CALLS; i++)
        if ((unsigned long)calls[i].number == info.seccomp.nr) call = &calls[i];
    if (!call) return NULL;
    memcpy(args, info.seccomp.args, sizeof info.seccomp.args);
    switch (call->where) {
    case SOCKET:
    case KIND:
    case DESCRIPTOR: path_of(thread, (int)args[0], path, size); break;
    case PATH: path_in(thread, AT_FDCWD, args[0], path, size); break;
    case NEW_AT:
        if (!(args[2] & (records ? O_CREAT | O_TRUNC : O_EXCL)) && !is_unnamed(args)) return NULL;
        /* fall through */
    case AT: path_in(thread, (int)args[0], args[1], path, size); break;
    case TO: path_in(thread, AT_FDCWD, args[1], path, size); break;
    case TO_AT: path_in(thread, (int)args[2], args[3], path, size); break;
    }
    return call;
}

/* Makes the call of a stopped thread fail with EIO; returns 0 if that is not possible. */
static int fail_call(pid_t thread) {
#ifdef __x86_64__
    return !ptrace(PTRACE_POKEUSER, thread, (void *)offsetof(struct user, regs.orig_rax), (void *)-1L) &&
           !ptrace(PTRACE_POKEUSER, thread, (void *)offsetof(struct user, regs.rax), (void *)(long)-EIO);
#else
    (void)thread;
    return 0;
#endif
}

static void write_record(FILE *log, const char *name, long long number, const char *path, const char *second, const char *data,
                         size_t length) {
    fprintf(log, "%s %lld %zu %zu %zu\n%s%s", name, number, strlen(path), strlen(second), length, path, second);
    fwrite(data, 1, length, log);
    fputc('\n', log);
    fflush(log);
}

/* Reads bytes from a thread's memory; returns how many. */
static size_t read_memory(pid_t thread, unsigned long address, void *bytes, size_t size) {
    struct iovec here = {bytes, size}, there = {(void *)address, size};
    ssize_t length = process_vm_readv(thread, &here, 1, &there, 1, 0);
    return length < 0 ? 0 : (size_t)length;
}

/* Records an answer of HTTP, if that is what the call sends: its first bytes. */
static void record_answer(FILE *log, pid_t thread, const struct call *call, const __uint64_t args[6]) {
    unsigned long address = args[1], length = args[2];
    if (call->number == SYS_writev) {
        struct iovec first;
        if (read_memory(thread, args[1], &first, sizeof first) != sizeof first) return;
        address = (unsigned long)first.iov_base;
        length = first.iov_len;
    }
    char head[1024];
    length = read_memory(thread, address, head, length < sizeof head ? length : sizeof head);
    if (length > 10 && memcmp(head, "HTTP/1.1 2", 10) == 0) write_record(log, "answer", 0, "", "", head, length);
}

/* The position of a file descriptor. */
static long long position_of(pid_t thread, int descriptor) {
    char name[64];
    long long position = -1;
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", thread, descriptor);
    FILE *info = fopen(name, "r");
    if (!info) return -1;
    if (fscanf(info, "pos: %lld", &position) != 1) position = -1;
    fclose(info);
    return position;
}

/* Carries out the call of a stopped thread while no other recorded call is, and records it if it succeeds. Returns 0 if the thread
 * has ended, and exits where the call can't be recorded. */
static int record(FILE *log, pid_t thread, const struct call *call, const __uint64_t args[6], const char *path) {
    char from[8192] = "", name[64];
    struct stat file;
    int is_new = call->where == NEW_AT && lstat(path, &file);
    if (call->where == TO_AT) linked_path(thread, (int)args[0], args[1], from, sizeof from);
    if (call->where == TO) path_in(thread, AT_FDCWD, args[0], from, sizeof from);
    int status;
    if (ptrace(PTRACE_SYSCALL, thread, 0, 0) || waitpid(thread, &status, __WALL) < 0 || !WIFSTOPPED(status)) return 0;
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_EXIT) exit(3);
    if (info.exit.is_error) return 1;
    if (call->where == KIND) {
        /* The first member of the answer. */
        if (ptrace(PTRACE_POKEDATA, thread, (void *)args[1], (void *)(long)EXT4_SUPER_MAGIC)) exit(3);
        return 1;
    }
    long long result = info.exit.rval;
    snprintf(name, sizeof name, "/proc/%d/fd/%d", thread, (int)args[0]);
    switch (call->number) {
    case SYS_copy_file_range: exit(3);
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_pwritev: {
        int is_at = call->number == SYS_pwrite64 || call->number == SYS_pwritev;
        long long offset = is_at ? (long long)args[3] : position_of(thread, (int)args[0]) - result;
        char *data = malloc((size_t)result + 1);
        /* What is in the file now, in whatever way it was written. */
        int opened = open(name, O_RDONLY | O_CLOEXEC);
        if (!data || opened < 0 || offset < 0 || pread(opened, data, (size_t)result, offset) != result) exit(3);
        close(opened);
        write_record(log, call->name, offset, path, "", data, (size_t)result);
        free(data);
        return 1;
    }
    case SYS_fallocate:
    case SYS_ftruncate:
        if (stat(name, &file)) exit(3);
        write_record(log, "truncate", file.st_size, path, "", "", 0);
        return 1;
    case SYS_utimensat:
        if (stat(name, &file)) exit(3);
        write_record(log, call->name, file.st_mtim.tv_sec * 1000000000LL + file.st_mtim.tv_nsec, path, "", "", 0);
        return 1;
    case SYS_openat:
        if (is_unnamed(args)) {
            char unnamed[8192];
            path_of(thread, (int)result, unnamed, sizeof unnamed);
            write_record(log, "create-unnamed", 0, unnamed, "", "", 0);
        } else if (is_new) write_record(log, call->name, 0, path, "", "", 0);
        else if (args[2] & O_TRUNC) write_record(log, "truncate", 0, path, "", "", 0);
        return 1;
    default:
        if (*from) write_record(log, call->name, 0, from, path, "", 0);
        else write_record(log, call->name, 0, path, "", "", 0);
        return 1;
    }
}

int main(int count, char **arguments) {
    if (count < 6) return 2;
    int fails = strcmp(arguments[1], "fail") == 0, records = strncmp(arguments[1], "record", 6) == 0;
    int denies = strcmp(arguments[1], "record-unsynced") == 0, changes_kind = strcmp(arguments[1], "record-ext4") == 0;
    long at = atol(arguments[2]), steps = 0;
    const char *folder = arguments[3];
    FILE *log = fopen(arguments[4], "w");
    if (!log) return 2;
    setvbuf(log, NULL, _IOLBF, 0);

    pid_t process = fork();
    if (process == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(77);
        raise(SIGSTOP);
        install_filter(records, denies, changes_kind);
        execv(arguments[5], arguments + 5);
        _exit(127);
    }
    int status, result = 77;
    if (process < 0 || waitpid(process, &status, __WALL) < 0 || !WIFSTOPPED(status)) return 77;
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
                   PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, process, 0, options)) {
        kill(process, SIGKILL);
        return 77;
    }
    fprintf(log, "%d\n", process);
    ptrace(PTRACE_CONT, process, 0, 0);

    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) break;
        if (!WIFSTOPPED(status)) {
            if (thread == process) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_SECCOMP) {
            char path[8192];
            __uint64_t args[6];
            const struct call *call = call_of(thread, records, args, path, sizeof path);
            int is_below = call && strncmp(path, folder, strlen(folder)) == 0;
            if (records) {
                int is_socket = call && strncmp(path, "socket:", 7) == 0;
                if (is_socket) record_answer(log, thread, call, args);
                if (is_below && !record(log, thread, call, args, path)) continue;
            } else if (is_below) {
                fprintf(log, "%s %s\n", call->name, path);
                if (++steps == at && !(fails && fail_call(thread))) {
                    kill(process, SIGKILL);
                    continue;
                }
            }
        }
        /* Do not pass on the stop with which a new thread begins. */
        if (event || signal == SIGSTOP || signal == SIGTRAP) signal = 0;
        ptrace(PTRACE_CONT, thread, 0, signal);
    }
    fclose(log);
    return result;
}
