/* What the kernel offers for short and long messages over TCP, tried between two emulated hosts.

   cc -O2 -o trial kernel_interfaces.c && weft hosts --hosts 2 -- ./trial

   Short: 4 bytes to the other host and back, 20,000 times: with sockets that are polled, that
   block, with SO_BUSY_POLL and TCP_QUICKACK, and with io_uring (a send and the next receive in one
   system call, which waits, or is polled). Long: 2 GiB in calls of 1 MiB with send, MSG_ZEROCOPY,
   and io_uring's send_zc. Prints microseconds per round trip or milliseconds per GiB, and processor
   time of both processes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_BUSY_POLL
#define SO_BUSY_POLL 46
#endif

static int rank;
static int peer;

static void die(const char *what) { perror(what); exit(1); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double processor(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1e-6 * (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void set_blocking(int on) {
    int flags = fcntl(peer, F_GETFL);
    fcntl(peer, F_SETFL, on ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

/* ---- io_uring, as little of it as is needed */

static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    unsigned queued;
} ring;

static int ring_open(void) {
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    ring.fd = syscall(SYS_io_uring_setup, 64, &p);
    if (ring.fd < 0) return -errno;
    char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
    char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_CQ_RING);
    ring.sqes = mmap(0, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
    ring.sq_tail = (unsigned *)(sq + p.sq_off.tail), ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask), ring.sq_array = (unsigned *)(sq + p.sq_off.array);
    ring.cq_head = (unsigned *)(cq + p.cq_off.head), ring.cq_tail = (unsigned *)(cq + p.cq_off.tail), ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    ring.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    return 0;
}

static void ring_add(int opcode, void *data, unsigned bytes, unsigned long user, unsigned flags) {
    unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;
    ring.sqes[at] = (struct io_uring_sqe){.opcode = opcode, .fd = peer, .addr = (unsigned long)data, .len = bytes, .user_data = user, .msg_flags = flags};
    ring.sq_array[at] = at;
    atomic_store_explicit((_Atomic unsigned *)ring.sq_tail, tail + 1, memory_order_release);
    ring.queued++;
}

static void ring_enter(unsigned wait) {
    int entered = syscall(SYS_io_uring_enter, ring.fd, ring.queued, wait, IORING_ENTER_GETEVENTS, 0, 0);
    if (entered < 0 && errno != EINTR) die("io_uring_enter");
    if (entered > 0) ring.queued -= entered;
}

static struct io_uring_cqe *ring_peek(void) {
    unsigned head = *ring.cq_head;
    if (head == atomic_load_explicit((_Atomic unsigned *)ring.cq_tail, memory_order_acquire)) return 0;
    return &ring.cqes[head & *ring.cq_mask];
}

static void ring_seen(void) { atomic_store_explicit((_Atomic unsigned *)ring.cq_head, *ring.cq_head + 1, memory_order_release); }

/* ---- short messages */

enum { SENDS = 1, RECEIVES = 2 };

static void uring_wait_for(int what, int polled) {
    for (;;) {
        struct io_uring_cqe *done = ring_peek();
        if (!done) {
            ring_enter(polled ? 0 : 1);
            continue;
        }
        int user = done->user_data, result = done->res;
        ring_seen();
        if (result < 0) { errno = -result; die("io_uring"); }
        if (user == what) return;
    }
}

static void send4(char *b) { if (send(peer, b, 4, MSG_NOSIGNAL) != 4) die("send"); }

static void receive4(char *b, int polled) {
    while (recv(peer, b, 4, 0) != 4)
        if (!polled || (errno != EAGAIN && errno != EINTR)) die("recv");
}

static void round_trips(const char *name, int how) {
    char b[4] = "abc";
    int count = 20000;
    double t = 0, c = 0;
    set_blocking(how == 1 || how == 2);
    for (int i = -1000; i < count; i++) {
        if (i == 0) t = now(), c = processor();
        if (how <= 2) {
            if (rank == 0) send4(b);
            receive4(b, how == 0);
            if (rank == 1) send4(b);
        } else {
            if (rank == 0) ring_add(IORING_OP_SEND, b, 4, SENDS, MSG_NOSIGNAL);
            ring_add(IORING_OP_RECV, b, 4, RECEIVES, 0);
            uring_wait_for(RECEIVES, how == 4);
            if (rank == 1) { ring_add(IORING_OP_SEND, b, 4, SENDS, MSG_NOSIGNAL); if (i == count - 1) uring_wait_for(SENDS, 0); }
        }
    }
    t = now() - t, c = processor() - c;
    printf("%-28s %7.2f us per round trip, %6.2f us of processor time\n", name, t / count * 1e6, c / count * 1e6);
    fflush(stdout);
}

/* ---- long messages */

static unsigned outstanding;

static void reap_zerocopy(void) {
    char control[200];
    struct msghdr m = {.msg_control = control, .msg_controllen = sizeof control};
    while (recvmsg(peer, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) {
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        struct sock_extended_err *e = (void *)CMSG_DATA(h);
        outstanding -= e->ee_data - e->ee_info + 1;
        m.msg_controllen = sizeof control;
    }
}

static void stream(const char *name, int how) {
    size_t total = 2ul << 30, piece = 1 << 20, moved = 0;
    static char *b;
    if (!b) { b = mmap(0, piece * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(b, 1, piece * 4); }
    set_blocking(1);
    char go = 0;
    if (rank == 0) recv(peer, &go, 1, MSG_WAITALL); else send(peer, &go, 1, 0);
    double t = now(), c = processor();
    if (rank == 1)
        while (moved < total) { ssize_t got = recv(peer, b, piece, 0); if (got <= 0) die("recv"); moved += got; }
    else if (how < 2) {
        int on = 1;
        if (how == 1 && setsockopt(peer, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on)) die("SO_ZEROCOPY");
        while (moved < total) {
            size_t bytes = total - moved < piece ? total - moved : piece;
            ssize_t sent = send(peer, b + moved / piece % 4 * piece, bytes, MSG_NOSIGNAL | (how ? MSG_ZEROCOPY : 0));
            if (sent < 0) die("send");
            moved += sent;
            if (how) { outstanding++; reap_zerocopy(); }
        }
        while (how && outstanding) reap_zerocopy();
    } else {
        unsigned flying = 0;
        while (moved < total || flying) {
            while (moved < total && flying < 2) { ring_add(IORING_OP_SEND_ZC, b + moved / piece % 4 * piece, piece, SENDS, MSG_WAITALL | MSG_NOSIGNAL); moved += piece; flying++; }
            ring_enter(1);
            struct io_uring_cqe *done;
            while ((done = ring_peek())) {
                if (done->res < 0 && !(done->flags & IORING_CQE_F_NOTIF)) { errno = -done->res; die("send_zc"); }
                if (done->flags & IORING_CQE_F_NOTIF || !(done->flags & IORING_CQE_F_MORE)) flying--;
                ring_seen();
            }
        }
    }
    t = now() - t, c = processor() - c;
    printf("%-28s %7.1f ms per GiB, %6.1f ms of processor time (%s)\n", name, t / 2 * 1e3, c / 2 * 1e3, rank ? "receives" : "sends");
    fflush(stdout);
}

int main(void) {
    rank = atoi(getenv("RANK"));
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(29600), .sin_addr.s_addr = inet_addr(getenv("MASTER_ADDR"))};
    int one = 1;
    if (rank == 0) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(s, (void *)&a, sizeof a) || listen(s, 1)) die("listen");
        peer = accept(s, 0, 0);
    } else {
        do { close(peer); peer = socket(AF_INET, SOCK_STREAM, 0); usleep(1000); } while (connect(peer, (void *)&a, sizeof a));
    }
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(peer, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    int ring_error = ring_open();
    for (int round = 0; round < 3; round++) {
        round_trips("polled", 0);
        round_trips("blocking", 1);
        int us = 50;
        setsockopt(peer, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us);
        setsockopt(peer, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
        round_trips("blocking, busy poll, quickack", 2);
        us = 0;
        setsockopt(peer, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us);
        if (ring_error == 0) {
            round_trips("io_uring, waiting", 3);
            round_trips("io_uring, polled", 4);
        } else printf("io_uring: %s\n", strerror(-ring_error));
        stream("send", 0);
        stream("MSG_ZEROCOPY", 1);
        if (ring_error == 0) stream("io_uring send_zc", 2);
    }
    return 0;
}
