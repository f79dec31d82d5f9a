// Makes threads late by chance, for .ci/flakes: preloaded into a test and all that it starts, it sleeps before or after some of
// their calls to the kernel, as if the scheduler had taken the processor away there. A test that relies on a lucky moment fails
// then, though nothing that it asks for takes longer than on a busy machine.
//
//   cc -O2 -shared -fPIC -o late.so .ci/late.c
//   LD_PRELOAD=$PWD/late.so LATE_ONE_IN=300 LATE_US_MAX=20000 LATE_SEED=1 PROGRAM
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t one_in, us_max, seed;
static __thread uint64_t drawn __attribute__((tls_model("initial-exec")));
static int (*sleep_for)(clockid_t, int, const struct timespec *, struct timespec *);

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

// splitmix64, begun for each thread from the seed, its address and its process's number.
static uint64_t draw(void) {
    if (!drawn)
        drawn = seed * 0xd1342543de82ef95 ^ (uint64_t)getpid() << 40 ^ (uint64_t)pthread_self() ^ 1;
    uint64_t mixed = drawn += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return mixed ^ mixed >> 31;
}

// Half of what is late is followed by more at once: what is late several times in a row is what single delays do not find. Each
// span of time, short or long, is as likely as its double.
static void be_late(void) {
    static __thread int again __attribute__((tls_model("initial-exec")));
    int number = errno;
    if (!one_in || !sleep_for || !(again || draw() % one_in == 0))
        return;
    again = draw() % 2;
    uint64_t us = us_max >> draw() % 8;
    us -= us / 2 ? draw() % (us / 2) : 0;
    struct timespec span = {us / 1000000, us % 1000000 * 1000};
    sleep_for(CLOCK_MONOTONIC, 0, &span, NULL);
    errno = number;
}

__attribute__((constructor)) static void begin(void) {
    us_max = number_of("LATE_US_MAX", 20000);
    seed = number_of("LATE_SEED", 1);
    sleep_for = dlsym(RTLD_NEXT, "clock_nanosleep");
    one_in = number_of("LATE_ONE_IN", 0);
    be_late();
}

#define LATE(result, name, parameters, arguments)                                                                                  \
    static result(*real_##name) parameters;                                                                                        \
    __attribute__((constructor)) static void find_##name(void) { real_##name = dlsym(RTLD_NEXT, #name); }                          \
    result name parameters {                                                                                                       \
        if (!real_##name)                                                                                                          \
            find_##name();                                                                                                         \
        be_late();                                                                                                                 \
        result answer = real_##name arguments;                                                                                     \
        be_late();                                                                                                                 \
        return answer;                                                                                                             \
    }

LATE(int, accept, (int fd, struct sockaddr *from, socklen_t *len), (fd, from, len))
LATE(int, accept4, (int fd, struct sockaddr *from, socklen_t *len, int flags), (fd, from, len, flags))
LATE(int, bind, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len))
LATE(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *span, struct timespec *left), (clock, flags, span, left))
LATE(int, close, (int fd), (fd))
LATE(int, connect, (int fd, const struct sockaddr *to, socklen_t len), (fd, to, len))
LATE(int, epoll_wait, (int fd, struct epoll_event *events, int count, int ms), (fd, events, count, ms))
LATE(int, kill, (pid_t process, int number), (process, number))
LATE(int, listen, (int fd, int waiting), (fd, waiting))
LATE(int, poll, (struct pollfd *fds, nfds_t count, int ms), (fds, count, ms))
LATE(int, ppoll, (struct pollfd *fds, nfds_t count, const struct timespec *span, const sigset_t *mask), (fds, count, span, mask))
LATE(ssize_t, read, (int fd, void *to, size_t len), (fd, to, len))
LATE(ssize_t, readv, (int fd, const struct iovec *to, int count), (fd, to, count))
LATE(ssize_t, recv, (int fd, void *to, size_t len, int flags), (fd, to, len, flags))
LATE(ssize_t, recvfrom, (int fd, void *to, size_t len, int flags, struct sockaddr *from, socklen_t *size), (fd, to, len, flags, from, size))
LATE(int, recvmmsg, (int fd, struct mmsghdr *to, unsigned count, int flags, struct timespec *span), (fd, to, count, flags, span))
LATE(ssize_t, recvmsg, (int fd, struct msghdr *to, int flags), (fd, to, flags))
LATE(int, rename, (const char *from, const char *to), (from, to))
LATE(ssize_t, send, (int fd, const void *from, size_t len, int flags), (fd, from, len, flags))
LATE(int, sendmmsg, (int fd, struct mmsghdr *from, unsigned count, int flags), (fd, from, count, flags))
LATE(ssize_t, sendmsg, (int fd, const struct msghdr *from, int flags), (fd, from, flags))
LATE(ssize_t, sendto, (int fd, const void *from, size_t len, int flags, const struct sockaddr *to, socklen_t size), (fd, from, len, flags, to, size))
LATE(int, shutdown, (int fd, int how), (fd, how))
LATE(int, waitid, (idtype_t which, id_t id, siginfo_t *told, int flags), (which, id, told, flags))
LATE(pid_t, waitpid, (pid_t process, int *status, int flags), (process, status, flags))
LATE(ssize_t, write, (int fd, const void *from, size_t len), (fd, from, len))
LATE(ssize_t, writev, (int fd, const struct iovec *from, int count), (fd, from, count))

// What waits for another thread (futex) and what enters io_uring come by here.
static long (*real_syscall)(long, ...);
__attribute__((constructor)) static void find_syscall(void) { real_syscall = dlsym(RTLD_NEXT, "syscall"); }
long syscall(long number, ...) {
    long a[6];
    va_list given;
    va_start(given, number);
    for (int index = 0; index < 6; index++)
        a[index] = va_arg(given, long);
    va_end(given);
    if (!real_syscall)
        find_syscall();
    be_late();
    long answer = real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    be_late();
    return answer;
}

// A thread begins late.
struct begun {
    void *(*runs)(void *);
    void *with;
};

static void *begin_late(void *given) {
    struct begun begun = *(struct begun *)given;
    free(given);
    be_late();
    return begun.runs(begun.with);
}

static int (*real_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
__attribute__((constructor)) static void find_create(void) { real_pthread_create = dlsym(RTLD_NEXT, "pthread_create"); }
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*runs)(void *), void *with) {
    if (!real_pthread_create)
        find_create();
    struct begun *begun = malloc(sizeof *begun);
    if (!begun)
        return EAGAIN;
    *begun = (struct begun){runs, with};
    int answer = real_pthread_create(thread, attributes, begin_late, begun);
    if (answer)
        free(begun);
    be_late();
    return answer;
}
