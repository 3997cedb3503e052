/*
 * Runs a program and kills it just before the Nth step below a folder, or has that step fail. A step is a system call that
 * changes or syncs files, including those of the database.
 *
 * Usage: steps kill|fail N FOLDER LOG PROGRAM [ARGUMENT...]
 *
 * With N = 0 there is no fault. LOG gets the process id, and then one line for each step: the call and its path.
 * A step that fails is not carried out; the program gets EIO.
 * Exits with the status of the program; 137 if it was killed; 77 if processes can't be traced or their calls not be changed.
 *
 * A seccomp filter stops a thread at these calls only, and ptrace reports them before they are carried out: when the process
 * is killed there, the call has no effect. Other threads may continue for a moment, as in a power cut.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* Which arguments of a call name the file. */
enum where {
    DESCRIPTOR, /* the first is a file descriptor */
    PATH,       /* the first is a path */
    AT,         /* the first is a folder, the second a path in it */
    NEW_AT,     /* the same, only with O_EXCL, which creates a file */
    TO,         /* the second is the new path */
    TO_AT,      /* the third is the folder and the fourth the new path in it */
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
    {SYS_utimensat, "date", DESCRIPTOR},
    {SYS_openat, "create", NEW_AT},
    {SYS_mkdirat, "mkdir", AT},
    {SYS_unlinkat, "unlink", AT},
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
};
enum { CALLS = sizeof calls / sizeof *calls };

static void install_filter(void) {
    struct sock_filter filter[2 * CALLS + 2];
    int at = 0;
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < CALLS; i++) {
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
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

/* The call that a stopped thread is about to make, and the path of its file. */
static const struct call *call_of(pid_t thread, char *path, size_t size) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return NULL;
    const struct call *call = NULL;
    for (int i = 0; i < CALLS; i++)
        if ((unsigned long)calls[i].number == info.seccomp.nr) call = &calls[i];
    if (!call) return NULL;
    const __uint64_t *args = info.seccomp.args;
    switch (call->where) {
    case DESCRIPTOR: path_of(thread, (int)args[0], path, size); break;
    case PATH: path_in(thread, AT_FDCWD, args[0], path, size); break;
    case NEW_AT:
        if (!(args[2] & O_EXCL)) return NULL;
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

int main(int count, char **arguments) {
    if (count < 6) return 2;
    int fails = strcmp(arguments[1], "fail") == 0;
    long at = atol(arguments[2]), steps = 0;
    const char *folder = arguments[3];
    FILE *log = fopen(arguments[4], "w");
    if (!log) return 2;
    setvbuf(log, NULL, _IOLBF, 0);

    pid_t process = fork();
    if (process == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(77);
        raise(SIGSTOP);
        install_filter();
        execv(arguments[5], arguments + 5);
        _exit(127);
    }
    int status, result = 77;
    if (process < 0 || waitpid(process, &status, __WALL) < 0 || !WIFSTOPPED(status)) return 77;
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
                   PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
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
            const struct call *call = call_of(thread, path, sizeof path);
            if (call && strncmp(path, folder, strlen(folder)) == 0) {
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
