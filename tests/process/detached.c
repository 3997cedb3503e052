/*
 * Preloaded, it aborts a program that detaches a thread which is about to end.
 *
 * glibc reads the thread's memory once more after it has detached it (sourceware bug 19951). A thread that ends in between has
 * released that memory, and the program dies of SIGSEGV, seldom. Here every detached thread gets a while to end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_THREADS 4096
#define PAUSE_IN_MICROSECONDS 1000
#define PAUSES 100

static struct thread {
    void *(*begin)(void *);
    void *argument;
    _Atomic pthread_t id;
    atomic_bool has_ended;
} threads[MOST_THREADS];
static atomic_int started;

static void *run(void *argument)
{
    struct thread *thread = argument;
    thread->id = pthread_self();
    void *result = thread->begin(thread->argument);
    thread->has_ended = 1;
    return result;
}

int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*begin)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    int number = atomic_fetch_add(&started, 1);
    if (number >= MOST_THREADS)
        abort();
    struct thread *thread = &threads[number];
    thread->begin = begin;
    thread->argument = argument;
    int result = real(id, attributes, run, thread);
    if (result == 0)
        thread->id = *id;
    return result;
}

int pthread_detach(pthread_t id)
{
    int (*real)(pthread_t) = dlsym(RTLD_NEXT, "pthread_detach");
    /* The newest one: ids are used again. */
    int number = atomic_load(&started) - 1;
    while (number >= 0 && threads[number].id != id)
        number--;
    int result = real(id);
    for (int pause = 0; number >= 0 && pause < PAUSES; pause++) {
        if (threads[number].has_ended) {
            dprintf(STDERR_FILENO, "a thread is detached that ends\n");
            abort();
        }
        usleep(PAUSE_IN_MICROSECONDS);
    }
    return result;
}
