/* The part of the CUDA driver's interface that weft uses, emulated by threads.

   Devices are two, their memory is the process's. A stream is a thread that carries out what was
   put into it, in order. Each device has a copy engine for each direction, with a latency and a
   rate. Engines and streams keep a clock of their own, so that a sleep that ends late does not
   make everything behind it late. What the real driver would let pass by accident is refused:
   asynchronous copies of host memory that is not registered, and copies of device memory that was
   not allocated. What a real driver may do is done if a test asks for it: one lock across calls, few
   hardware queues, limits of memory, pieces of an address range, threads that wake late.

   Functions that begin with `emulated_` are for tests and benchmarks. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

typedef int Result;
typedef uint64_t Address;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_ISOLATION = 905,
};
enum { DEVICES = 2, RANGES_MAX = 4096, REFUSED_MAX = 8, CONTEXTS_MAX = 16, CAPTURES_MAX = 8, QUEUES_MAX = 32 };
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { TO_HOST, TO_DEVICE, DIRECTIONS };
enum { STREAM_NON_BLOCKING = 1, HIGHEST_PRIORITY = -5 };
enum { EVENT_BLOCKING_SYNC = 1, POINTER_DEVICE_ORDINAL = 9, DEVICE_DMA_BUF_SUPPORTED = 124, HANDLE_DMA_BUF = 1 };

static pthread_mutex_t everything = PTHREAD_MUTEX_INITIALIZER;

/* Time. */

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static void sleep_until(double when) {
    struct timespec at = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static double later(double a, double b) { return a > b ? a : b; }

/* Memory: ranges of host memory that is registered, and of device memory. */

typedef struct {
    uint64_t start, bytes;
    int device;
    int file; /* of a piece of device memory: what it is exported by */
} Range;

typedef struct {
    Range ranges[RANGES_MAX];
    int count;
    uint64_t bytes;
} Ranges;

/* Allocations of device memory consist of pieces: of one, or of several that follow each other. */
static Ranges registered, allocated, pieces;
static uint64_t registered_bytes_max = UINT64_MAX, piece_bytes;

static Range *range_of(Ranges *all, uint64_t start, uint64_t bytes) {
    for (int i = 0; i < all->count; i++) {
        Range *one = &all->ranges[i];
        if (start >= one->start && start + bytes <= one->start + one->bytes) return one;
    }
    return NULL;
}

static int overlaps(Ranges *all, uint64_t start, uint64_t bytes) {
    for (int i = 0; i < all->count; i++) {
        Range *one = &all->ranges[i];
        if (start < one->start + one->bytes && one->start < start + bytes) return 1;
    }
    return 0;
}

static int add_range(Ranges *all, uint64_t start, uint64_t bytes, int device, int file) {
    if (all->count == RANGES_MAX) return 0;
    all->ranges[all->count++] = (Range){start, bytes, device, file};
    all->bytes += bytes;
    return 1;
}

static Range remove_range(Ranges *all, uint64_t start) {
    for (int i = 0; i < all->count; i++) {
        Range range = all->ranges[i];
        if (range.start != start) continue;
        all->bytes -= range.bytes;
        all->ranges[i] = all->ranges[--all->count];
        return range;
    }
    return (Range){0};
}

/* What tests ask for. */

static double rates[DIRECTIONS]; /* bytes a second; 0: as fast as memory */
static double latency;
static double engine_free_at[DEVICES][DIRECTIONS], engine_busy[DEVICES][DIRECTIONS];
static double processor_seconds;
static int live_events, live_streams;
static struct {
    char name[64];
    Result result;
} refused[REFUSED_MAX];

static int broken;
static pid_t process; /* in which cuInit was called: its children have no driver */

static Result refusal(const char *name) {
    if (process != 0 && process != getpid()) return NOT_INITIALIZED;
    if (broken) return ILLEGAL_ADDRESS;
    for (int i = 0; i < REFUSED_MAX; i++)
        if (strcmp(refused[i].name, name) == 0) return refused[i].result;
    return SUCCESS;
}

#define MAY_BE_REFUSED()                          \
    do {                                          \
        Result answer_ = refusal(__func__);       \
        if (answer_ != SUCCESS) return answer_;   \
    } while (0)

/* A lock of the driver, which calls hold until they return: those that wait for the device, too. */

static pthread_mutex_t lock_of_calls;
static int locks;

__attribute__((constructor)) static void make_lock(void) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock_of_calls, &recursive);
}

static int lock_call(void) {
    int locked = locks;
    if (locked) pthread_mutex_lock(&lock_of_calls);
    return locked;
}

static void unlock_call(int *locked) {
    if (*locked) pthread_mutex_unlock(&lock_of_calls);
}

#define LOCKED_CALL()   \
    MAY_BE_REFUSED();   \
    int locked_ __attribute__((cleanup(unlock_call))) = lock_call()

/* Events. Who waits for one waits for its last record; a later one changes nothing for him. */

typedef struct {
    pthread_cond_t changed;
    int done;
    double done_at;
    int references;
    int captured;
} Record;

typedef struct {
    Record *latest; /* NULL: there was none yet */
    int waiters;
} Event;

static int destroyed_in_use, waiting;
static double wakes_late_s;

static Record *new_record(void) {
    Record *record = calloc(1, sizeof *record);
    pthread_cond_init(&record->changed, NULL);
    record->references = 1;
    return record;
}

static void release_record(Record *record) {
    if (record != NULL && --record->references == 0) {
        pthread_cond_destroy(&record->changed);
        free(record);
    }
}

static void wait_for_record(Record *record) {
    while (!record->done) pthread_cond_wait(&record->changed, &everything);
}

/* Hardware queues: what streams that share one have put in is carried out in the order in which it
   was put in. Without a limit, every stream has its own. */

typedef struct {
    pthread_cond_t changed;
    uint64_t issued, ended;
} Queue;

static Queue queues[DEVICES][QUEUES_MAX];
static unsigned queue_count, streams_made[DEVICES];

__attribute__((constructor)) static void make_queues(void) {
    const char *asked = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    queue_count = asked == NULL ? 0 : (unsigned)atoi(asked);
    if (queue_count > QUEUES_MAX) queue_count = QUEUES_MAX;
    for (int device = 0; device < DEVICES; device++)
        for (int i = 0; i < QUEUES_MAX; i++) pthread_cond_init(&queues[device][i].changed, NULL);
}

/* Streams. */

typedef enum { COPY, RECORD, WAIT_EVENT, WAIT_VALUE, WRITE_VALUE, DELAY, FILL, ADD } Kind;

typedef struct Operation {
    struct Operation *next;
    Kind kind;
    double issued_at;
    int direction;
    void *to;
    const void *from;
    void *owned; /* freed with the operation */
    uint64_t bytes;
    Record *record;
    volatile uint32_t *word;
    uint32_t value;
    double seconds;
    uint64_t ticket; /* its place in the hardware queue */
} Operation;

typedef struct Stream {
    pthread_t thread;
    pthread_cond_t changed;
    Operation *first, *last;
    uint64_t issued, ended;
    double ready_at;
    int device, closing;
    int capturing; /* 2: it has joined another stream's capture */
    Queue *queue;  /* NULL: one of its own */
    struct Stream *next;
} Stream;

static Stream *streams; /* all of them */

static const double POLL_S = 20e-6;

static void copy(Stream *stream, Operation *op) {
    pthread_mutex_lock(&everything);
    double *free_at = &engine_free_at[stream->device][op->direction];
    double rate = rates[op->direction];
    double seconds = latency + (rate > 0 ? (double)op->bytes / rate : 0);
    double ends = later(stream->ready_at, *free_at) + seconds;
    *free_at = ends;
    engine_busy[stream->device][op->direction] += seconds;
    pthread_mutex_unlock(&everything);
    memcpy(op->to, op->from, op->bytes);
    if (seconds > 0) sleep_until(ends);
    stream->ready_at = ends;
}

static void wait_value(Stream *stream, Operation *op) {
    int waited = 0;
    while ((int32_t)(__atomic_load_n(op->word, __ATOMIC_ACQUIRE) - op->value) < 0 && !broken) {
        sleep_until(now() + POLL_S);
        waited = 1;
    }
    if (waited) stream->ready_at = now();
}

static void carry_out(Stream *stream, Operation *op) {
    stream->ready_at = later(stream->ready_at, op->issued_at);
    if (broken && op->kind != RECORD && op->kind != WAIT_EVENT) return;
    switch (op->kind) {
    case COPY:
        copy(stream, op);
        break;
    case RECORD:
        pthread_mutex_lock(&everything);
        op->record->done = 1;
        op->record->done_at = stream->ready_at;
        pthread_cond_broadcast(&op->record->changed);
        release_record(op->record);
        pthread_mutex_unlock(&everything);
        break;
    case WAIT_EVENT:
        pthread_mutex_lock(&everything);
        wait_for_record(op->record);
        stream->ready_at = later(stream->ready_at, op->record->done_at);
        release_record(op->record);
        pthread_mutex_unlock(&everything);
        break;
    case WAIT_VALUE:
        wait_value(stream, op);
        break;
    case WRITE_VALUE:
        __atomic_store_n(op->word, op->value, __ATOMIC_RELEASE);
        break;
    case DELAY:
        stream->ready_at += op->seconds;
        sleep_until(stream->ready_at);
        break;
    case FILL:
        for (uint64_t i = 0; i < op->bytes / 4; i++) ((uint32_t *)op->to)[i] = op->value;
        break;
    case ADD:
        for (uint64_t i = 0; i < op->bytes / 4; i++) ((int32_t *)op->to)[i] += ((const int32_t *)op->from)[i];
        break;
    }
}

static double own_processor_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void *serve(void *argument) {
    Stream *stream = argument;
    double counted = 0;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    pthread_mutex_lock(&everything);
    for (;;) {
        double used = own_processor_seconds();
        processor_seconds += used - counted;
        counted = used;
        while (stream->first == NULL && !stream->closing) pthread_cond_wait(&stream->changed, &everything);
        Operation *op = stream->first;
        if (op == NULL) break;
        Queue *queue = stream->queue;
        while (queue != NULL && queue->ended != op->ticket) pthread_cond_wait(&queue->changed, &everything);
        pthread_mutex_unlock(&everything);
        carry_out(stream, op);
        pthread_mutex_lock(&everything);
        if (queue != NULL) {
            queue->ended++;
            pthread_cond_broadcast(&queue->changed);
        }
        stream->first = op->next;
        if (stream->first == NULL) stream->last = NULL;
        stream->ended++;
        pthread_cond_broadcast(&stream->changed);
        free(op->owned);
        free(op);
    }
    pthread_mutex_unlock(&everything);
    return NULL;
}

/* Needs `everything`. */
static Stream *new_stream(int device) {
    Stream *stream = calloc(1, sizeof *stream);
    stream->device = device;
    if (queue_count > 0) stream->queue = &queues[device][streams_made[device]++ % queue_count];
    stream->next = streams;
    streams = stream;
    pthread_cond_init(&stream->changed, NULL);
    pthread_create(&stream->thread, NULL, serve, stream);
    return stream;
}

/* Contexts: one for each device, current by thread. */

static Stream *default_streams[DEVICES];
static __thread int contexts[CONTEXTS_MAX], context_count;

static int current_device(void) { return context_count > 0 ? contexts[context_count - 1] : -1; }

/* 1 is a name of the default stream, too. */
static Stream *stream_of(Stream *handle) {
    if ((uintptr_t)handle > 1) return handle;
    int device = current_device();
    if (device < 0) return NULL;
    pthread_mutex_lock(&everything);
    if (default_streams[device] == NULL) default_streams[device] = new_stream(device);
    Stream *stream = default_streams[device];
    pthread_mutex_unlock(&everything);
    return stream;
}

static Result put(Stream *handle, Operation what) {
    Stream *stream = stream_of(handle);
    if (stream == NULL) return INVALID_CONTEXT;
    if (stream->capturing) return SUCCESS; /* it is recorded, and not carried out */
    Operation *op = malloc(sizeof *op);
    *op = what;
    op->next = NULL;
    op->issued_at = now();
    pthread_mutex_lock(&everything);
    if (op->record != NULL) op->record->references++;
    if (stream->last != NULL) {
        stream->last->next = op;
    } else {
        stream->first = op;
    }
    stream->last = op;
    stream->issued++;
    if (stream->queue != NULL) op->ticket = stream->queue->issued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&everything);
    return SUCCESS;
}

/* Captures of streams for graphs, and calls that could disturb them. */

static struct {
    Stream *stream;
    pthread_t thread;
    int mode, invalid;
} captures[CAPTURES_MAX];
static __thread int capture_mode = GLOBAL;

/* Whether a capture, of this thread or of another, forbids a call that could disturb it; if so, the
   call has ended the capture. */
static int disturbs_capture(void) {
    int found = 0;
    pthread_mutex_lock(&everything);
    for (int i = 0; i < CAPTURES_MAX && capture_mode != RELAXED; i++) {
        if (captures[i].stream == NULL || captures[i].mode == RELAXED) continue;
        int own = pthread_equal(captures[i].thread, pthread_self());
        if (!own && (captures[i].mode != GLOBAL || capture_mode != GLOBAL)) continue;
        captures[i].invalid = found = 1;
    }
    pthread_mutex_unlock(&everything);
    return found;
}

static void invalidate_capture(Stream *stream) {
    pthread_mutex_lock(&everything);
    for (int i = 0; i < CAPTURES_MAX; i++)
        if (captures[i].stream == stream) captures[i].invalid = 1;
    pthread_mutex_unlock(&everything);
}

#define DISTURBING_CALL() \
    LOCKED_CALL();        \
    if (disturbs_capture()) return CAPTURE_UNSUPPORTED

Result cuThreadExchangeStreamCaptureMode(int *mode) {
    if (*mode < GLOBAL || *mode > RELAXED) return INVALID_VALUE;
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}

Result cuInit(unsigned flags) {
    MAY_BE_REFUSED();
    process = getpid();
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

Result cuDriverGetVersion(int *version) {
    *version = 13020;
    return SUCCESS;
}

Result cuDeviceGetCount(int *count) {
    MAY_BE_REFUSED();
    *count = DEVICES;
    return SUCCESS;
}

Result cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

Result cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    if (length < 1) return INVALID_VALUE;
    strncpy(name, "emulated device", (size_t)length - 1);
    name[length - 1] = 0;
    return SUCCESS;
}

Result cuDeviceGetPCIBusId(char *address, int length, int device) {
    if (device < 0 || device >= DEVICES) return INVALID_DEVICE;
    if (length < 13) return INVALID_VALUE;
    memcpy(address, device == 0 ? "0000:3B:00.0" : "0000:5E:00.0", 13);
    return SUCCESS;
}

/* A refusal says that no device has it. */
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    if (attribute != DEVICE_DMA_BUF_SUPPORTED) return INVALID_VALUE;
    *value = refusal(__func__) == SUCCESS;
    return SUCCESS;
}

Result cuDeviceCanAccessPeer(int *can, int device, int peer) {
    (void)device, (void)peer;
    *can = 0;
    return SUCCESS;
}

Result cuDevicePrimaryCtxRetain(void **context, int device) {
    MAY_BE_REFUSED();
    *context = (void *)(intptr_t)(device + 1);
    return SUCCESS;
}

Result cuCtxPushCurrent_v2(void *context) {
    if (context == NULL || context_count == CONTEXTS_MAX) return INVALID_CONTEXT;
    contexts[context_count++] = (int)(intptr_t)context - 1;
    return SUCCESS;
}

Result cuCtxPopCurrent_v2(void **context) {
    if (context_count == 0) return INVALID_CONTEXT;
    *context = (void *)(intptr_t)(contexts[--context_count] + 1);
    return SUCCESS;
}

Result cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    DISTURBING_CALL();
    (void)flags;
    if (current_device() < 0) return INVALID_CONTEXT;
    if (start == NULL || bytes == 0) return INVALID_VALUE;
    /* Pages that are pinned are there. Others may be writing to them. */
    for (size_t at = 0; at < bytes; at += 4096) __atomic_fetch_add((char *)start + at, 0, __ATOMIC_RELAXED);
    pthread_mutex_lock(&everything);
    Result result = SUCCESS;
    if (overlaps(&registered, (uint64_t)start, bytes)) {
        result = ALREADY_REGISTERED;
    } else if (registered.bytes + bytes > registered_bytes_max) {
        result = OUT_OF_MEMORY;
    } else if (!add_range(&registered, (uint64_t)start, bytes, -1, -1)) {
        result = INVALID_VALUE;
    }
    pthread_mutex_unlock(&everything);
    return result;
}

Result cuMemHostUnregister(void *start) {
    DISTURBING_CALL();
    pthread_mutex_lock(&everything);
    Result result = remove_range(&registered, (uint64_t)start).start ? SUCCESS : NOT_REGISTERED;
    pthread_mutex_unlock(&everything);
    return result;
}

Result cuMemHostGetDevicePointer_v2(Address *device, void *host, unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&everything);
    int known = range_of(&registered, (uint64_t)host, 1) != NULL;
    pthread_mutex_unlock(&everything);
    *device = (Address)host;
    return known ? SUCCESS : INVALID_VALUE;
}

static size_t in_pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Maps a new file at an address, as a piece of device memory. Needs `everything`. */
static int map_piece(uint64_t start, size_t bytes) {
    int file = memfd_create("emulated device", MFD_CLOEXEC);
    if (file < 0) return 0;
    int flags = MAP_SHARED | MAP_FIXED;
    if (ftruncate(file, (off_t)in_pages(bytes)) == 0
        && mmap((void *)start, bytes, PROT_READ | PROT_WRITE, flags, file, 0) != MAP_FAILED
        && add_range(&pieces, start, bytes, current_device(), file))
        return 1;
    close(file);
    return 0;
}

static void close_pieces(uint64_t start, uint64_t bytes) {
    for (int i = pieces.count - 1; i >= 0; i--) {
        Range piece = pieces.ranges[i];
        if (piece.start < start || piece.start >= start + bytes) continue;
        close(piece.file);
        remove_range(&pieces, piece.start);
    }
}

Result cuMemAlloc_v2(Address *device, size_t bytes) {
    DISTURBING_CALL();
    if (current_device() < 0) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return OUT_OF_MEMORY;
    uint64_t start = (uint64_t)memory, each = piece_bytes ? piece_bytes : bytes;
    pthread_mutex_lock(&everything);
    int made = add_range(&allocated, start, bytes, current_device(), -1);
    for (uint64_t at = 0; made && at < bytes; at += each)
        made = map_piece(start + at, bytes - at < each ? bytes - at : each);
    if (!made) {
        close_pieces(start, bytes);
        remove_range(&allocated, start);
    }
    pthread_mutex_unlock(&everything);
    if (!made) {
        munmap(memory, bytes);
        return OUT_OF_MEMORY;
    }
    *device = (Address)memory;
    return SUCCESS;
}

/* Returns when no stream has work left. Needs `everything`. */
static void wait_for_all_streams(void) {
    for (Stream *stream = streams; stream != NULL;) {
        uint64_t issued = stream->issued;
        int idle = stream->ended >= issued;
        while (stream->ended < issued) pthread_cond_wait(&stream->changed, &everything);
        stream = idle ? stream->next : streams; /* others may have been destroyed meanwhile */
    }
}

/* Waits for the device, like the real one. */
Result cuMemFree_v2(Address device) {
    DISTURBING_CALL();
    pthread_mutex_lock(&everything);
    if (locks) wait_for_all_streams();
    Range range = remove_range(&allocated, device);
    close_pieces(range.start, range.bytes);
    pthread_mutex_unlock(&everything);
    if (range.start == 0) return INVALID_VALUE;
    munmap((void *)device, range.bytes);
    return SUCCESS;
}

/* Of whole pages of one allocation. The file is the device's memory if they begin where a piece
   does, and end in it, and a copy otherwise. */
Result cuMemGetHandleForAddressRange(int *handle, Address start, size_t bytes, int kind, unsigned long long flags) {
    MAY_BE_REFUSED();
    if (kind != HANDLE_DMA_BUF || flags != 0 || in_pages(start) != start || in_pages(bytes) != bytes || bytes == 0)
        return INVALID_VALUE;
    pthread_mutex_lock(&everything);
    Range *whole = range_of(&allocated, start, 1), *piece = range_of(&pieces, start, 1);
    int known = whole != NULL && start + bytes <= whole->start + in_pages(whole->bytes);
    int direct = known && piece->start == start && bytes <= in_pages(piece->bytes);
    int file = direct ? fcntl(piece->file, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&everything);
    if (!known) return INVALID_VALUE;
    if (!direct) {
        file = memfd_create("emulated device", MFD_CLOEXEC);
        if (file >= 0 && pwrite(file, (void *)start, bytes, 0) != (ssize_t)bytes) {
            close(file);
            file = -1;
        }
    }
    *handle = file;
    return file >= 0 ? SUCCESS : OUT_OF_MEMORY;
}

static Result wait_for_stream(Stream *stream) {
    pthread_mutex_lock(&everything);
    uint64_t issued = stream->issued;
    while (stream->ended < issued) pthread_cond_wait(&stream->changed, &everything);
    pthread_mutex_unlock(&everything);
    return broken ? ILLEGAL_ADDRESS : SUCCESS;
}

/* Like the real driver, a copy from pageable memory reads it during the call, and one to it is
   waited for. Only where tests refuse to pin memory: elsewhere it would be an accident. */
static Result copied(int direction, void *to, const void *from, size_t bytes, Stream *handle, int any_host) {
    const void *host = direction == TO_HOST ? to : from, *device = direction == TO_HOST ? from : to;
    pthread_mutex_lock(&everything);
    Range *there = range_of(&allocated, (uint64_t)device, bytes);
    int pinned = any_host || range_of(&registered, (uint64_t)host, bytes) != NULL;
    pthread_mutex_unlock(&everything);
    int may_be_pageable = registered_bytes_max != UINT64_MAX || refusal("cuMemHostRegister_v2") != SUCCESS;
    if (there == NULL || !(pinned || may_be_pageable)) return INVALID_VALUE;
    Operation op = {.kind = COPY, .direction = direction, .to = to, .from = from, .bytes = bytes};
    if (!pinned && direction == TO_DEVICE) op.from = op.owned = memcpy(malloc(bytes), from, bytes);
    Result result = put(handle, op);
    if (pinned || direction == TO_DEVICE || result != SUCCESS) return result;
    return wait_for_stream(stream_of(handle));
}

Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *stream) {
    LOCKED_CALL();
    return copied(TO_HOST, to, (const void *)from, bytes, stream, 0);
}

Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *stream) {
    LOCKED_CALL();
    return copied(TO_DEVICE, (void *)to, from, bytes, stream, 0);
}

Result cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
    DISTURBING_CALL();
    if (current_device() < 0) return INVALID_CONTEXT;
    if (flags != STREAM_NON_BLOCKING || priority < HIGHEST_PRIORITY || priority > 0) return INVALID_VALUE;
    pthread_mutex_lock(&everything);
    *stream = new_stream(current_device());
    live_streams++;
    pthread_mutex_unlock(&everything);
    return SUCCESS;
}

Result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    MAY_BE_REFUSED();
    *least = 0;
    *greatest = HIGHEST_PRIORITY;
    return SUCCESS;
}

Result cuStreamDestroy_v2(Stream *stream) {
    LOCKED_CALL();
    if (stream == NULL) return INVALID_HANDLE;
    pthread_mutex_lock(&everything);
    stream->closing = 1;
    live_streams--;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&everything);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&everything);
    Stream **at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&everything);
    pthread_cond_destroy(&stream->changed);
    free(stream);
    return SUCCESS;
}

Result cuStreamSynchronize(Stream *handle) {
    DISTURBING_CALL();
    Stream *stream = stream_of(handle);
    return stream == NULL ? INVALID_CONTEXT : wait_for_stream(stream);
}

Result cuStreamQuery(Stream *handle) {
    DISTURBING_CALL();
    Stream *stream = stream_of(handle);
    if (stream == NULL) return INVALID_CONTEXT;
    pthread_mutex_lock(&everything);
    int done = stream->ended == stream->issued;
    pthread_mutex_unlock(&everything);
    return done ? SUCCESS : NOT_READY;
}

/* Copies of any host memory, which the caller waits for. */

Result cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
    DISTURBING_CALL();
    Result result = copied(TO_HOST, to, (const void *)from, bytes, NULL, 1);
    return result != SUCCESS ? result : cuStreamSynchronize(NULL);
}

Result cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
    DISTURBING_CALL();
    Result result = copied(TO_DEVICE, (void *)to, from, bytes, NULL, 1);
    return result != SUCCESS ? result : cuStreamSynchronize(NULL);
}

Result cuStreamIsCapturing(Stream *handle, int *status) {
    Stream *stream = stream_of(handle);
    if (stream == NULL) return INVALID_CONTEXT;
    *status = stream->capturing;
    return SUCCESS;
}

/* The last record of an event, which stays until it is released. */
static Record *latest(Event *event) {
    pthread_mutex_lock(&everything);
    Record *record = event->latest;
    if (record != NULL) record->references++;
    pthread_mutex_unlock(&everything);
    return record;
}

static void release_latest(Record *record) {
    pthread_mutex_lock(&everything);
    release_record(record);
    pthread_mutex_unlock(&everything);
}

/* A stream that waits for an event of a capture joins it; one of a capture waits for no other. */
Result cuStreamWaitEvent(Stream *handle, Event *event, unsigned flags) {
    LOCKED_CALL();
    if (event == NULL || flags != 0) return INVALID_HANDLE;
    Stream *stream = stream_of(handle);
    if (stream == NULL) return INVALID_CONTEXT;
    Record *record = latest(event);
    if (record == NULL) return SUCCESS;
    Result result = SUCCESS;
    if (record->captured && !stream->capturing) {
        stream->capturing = 2;
    } else if (stream->capturing && !record->captured) {
        invalidate_capture(stream);
        result = CAPTURE_ISOLATION;
    } else {
        result = put(stream, (Operation){.kind = WAIT_EVENT, .record = record});
    }
    release_latest(record);
    return result;
}

static Result put_value(Kind kind, Stream *stream, Address word, uint32_t value, unsigned flags) {
    pthread_mutex_lock(&everything);
    int known = range_of(&registered, word, 4) != NULL;
    pthread_mutex_unlock(&everything);
    if (!known || flags != 0 || word % 4 != 0) return INVALID_VALUE;
    return put(stream, (Operation){.kind = kind, .word = (volatile uint32_t *)word, .value = value});
}

Result cuStreamWaitValue32_v2(Stream *stream, Address word, uint32_t value, unsigned flags) {
    LOCKED_CALL();
    return put_value(WAIT_VALUE, stream, word, value, flags);
}

Result cuStreamWriteValue32_v2(Stream *stream, Address word, uint32_t value, unsigned flags) {
    LOCKED_CALL();
    return put_value(WRITE_VALUE, stream, word, value, flags);
}

Result cuEventCreate(Event **event, unsigned flags) {
    if (!(flags & EVENT_BLOCKING_SYNC)) return INVALID_VALUE; /* a wait for it would spin */
    *event = calloc(1, sizeof **event);
    pthread_mutex_lock(&everything);
    live_events++;
    pthread_mutex_unlock(&everything);
    return SUCCESS;
}

Result cuEventDestroy_v2(Event *event) {
    MAY_BE_REFUSED();
    if (event == NULL) return INVALID_HANDLE;
    pthread_mutex_lock(&everything);
    live_events--;
    int in_use = event->waiters > 0;
    destroyed_in_use += in_use;
    release_record(event->latest);
    event->latest = NULL;
    pthread_mutex_unlock(&everything);
    if (!in_use) free(event);
    return SUCCESS;
}

Result cuEventRecord(Event *event, Stream *handle) {
    LOCKED_CALL();
    if (event == NULL) return INVALID_HANDLE;
    Stream *stream = stream_of(handle);
    if (stream == NULL) return INVALID_CONTEXT;
    Record *record = new_record();
    record->captured = stream->capturing;
    Result result = put(stream, (Operation){.kind = RECORD, .record = record});
    pthread_mutex_lock(&everything);
    release_record(event->latest);
    event->latest = record;
    pthread_mutex_unlock(&everything);
    return result;
}

Result cuEventQuery(Event *event) {
    DISTURBING_CALL();
    Record *record = latest(event);
    if (record == NULL) return SUCCESS;
    pthread_mutex_lock(&everything);
    Result result = record->done ? SUCCESS : NOT_READY;
    release_record(record);
    pthread_mutex_unlock(&everything);
    return result;
}

Result cuEventSynchronize(Event *event) {
    DISTURBING_CALL();
    Record *record = latest(event);
    if (record == NULL) return SUCCESS;
    pthread_mutex_lock(&everything);
    event->waiters++;
    waiting++;
    wait_for_record(record);
    release_record(record);
    pthread_mutex_unlock(&everything);
    if (wakes_late_s > 0) sleep_until(now() + wakes_late_s);
    pthread_mutex_lock(&everything);
    event->waiters--;
    waiting--;
    pthread_mutex_unlock(&everything);
    return broken ? ILLEGAL_ADDRESS : SUCCESS;
}

Result cuPointerGetAttribute(void *value, int attribute, Address address) {
    if (attribute != POINTER_DEVICE_ORDINAL) return INVALID_VALUE;
    pthread_mutex_lock(&everything);
    Range *range = range_of(&allocated, address, 1);
    if (range != NULL) *(int *)value = range->device;
    pthread_mutex_unlock(&everything);
    return range != NULL ? SUCCESS : INVALID_VALUE;
}

Result cuGetErrorName(Result result, const char **name) {
    *name = result == 801   ? "CUDA_ERROR_NOT_SUPPORTED"
            : result == 712 ? "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
            : result == 901 ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
            : result == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
            : result == 905 ? "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
            : result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == 100 ? "CUDA_ERROR_NO_DEVICE"
            : result == 3   ? "CUDA_ERROR_NOT_INITIALIZED"
            : result == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == 1   ? "CUDA_ERROR_INVALID_VALUE"
                            : "CUDA_ERROR";
    return SUCCESS;
}

/* For tests and benchmarks. */

void emulated_configure(double bytes_per_s_to_host, double bytes_per_s_to_device, double latency_s) {
    pthread_mutex_lock(&everything);
    rates[TO_HOST] = bytes_per_s_to_host;
    rates[TO_DEVICE] = bytes_per_s_to_device;
    latency = latency_s;
    memset(engine_busy, 0, sizeof engine_busy);
    pthread_mutex_unlock(&everything);
}

void emulated_refuse(const char *name, Result result) {
    for (int i = 0; i < REFUSED_MAX; i++) {
        if (refused[i].name[0] != 0) continue;
        strncpy(refused[i].name, name, sizeof refused[i].name - 1);
        refused[i].result = result;
        return;
    }
}

void emulated_allow_everything(void) {
    memset(refused, 0, sizeof refused);
    broken = locks = 0;
    registered_bytes_max = UINT64_MAX;
    piece_bytes = 0;
    wakes_late_s = 0;
}

/* A kernel has failed: streams carry out nothing more, and calls return its error. */
void emulated_break_device(void) { broken = 1; }

void emulated_lock_calls(void) { locks = 1; }

void emulated_limit_registered(uint64_t bytes) { registered_bytes_max = bytes; }

void emulated_allocate_in_pieces(uint64_t bytes) { piece_bytes = bytes; }

void emulated_wake_late(double seconds) { wakes_late_s = seconds; }

int emulated_waiting(void) { return waiting; }

int emulated_destroyed_in_use(void) { return destroyed_in_use; }

void emulated_begin_capture(Stream *stream, int mode) {
    pthread_mutex_lock(&everything);
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].stream != NULL) continue;
        captures[i].stream = stream;
        captures[i].thread = pthread_self();
        captures[i].mode = mode;
        captures[i].invalid = 0;
        break;
    }
    stream->capturing = 1;
    pthread_mutex_unlock(&everything);
}

Result emulated_end_capture(Stream *stream) {
    int invalid = 1;
    pthread_mutex_lock(&everything);
    for (int i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].stream != stream) continue;
        captures[i].stream = NULL;
        invalid = captures[i].invalid;
    }
    stream->capturing = 0;
    for (Stream *one = streams; one != NULL; one = one->next) {
        if (one->capturing != 2) continue; /* it has joined, and nothing waits for it */
        one->capturing = 0;
        invalid = 1;
    }
    pthread_mutex_unlock(&everything);
    return invalid ? CAPTURE_INVALIDATED : SUCCESS;
}

uint64_t emulated_registered_bytes(void) { return registered.bytes; }

int emulated_live_events(void) { return live_events; }

int emulated_live_streams(void) { return live_streams; }

double emulated_processor_seconds(void) {
    pthread_mutex_lock(&everything);
    double seconds = processor_seconds;
    pthread_mutex_unlock(&everything);
    return seconds;
}

double emulated_engine_seconds(int device, int direction) { return engine_busy[device][direction]; }

Result emulated_delay(Stream *stream, double seconds) {
    return put(stream, (Operation){.kind = DELAY, .seconds = seconds});
}

Result emulated_fill(Stream *stream, Address to, uint32_t value, uint64_t words) {
    return put(stream, (Operation){.kind = FILL, .to = (void *)to, .value = value, .bytes = 4 * words});
}

Result emulated_add(Stream *stream, Address to, Address from, uint64_t words) {
    return put(stream, (Operation){.kind = ADD, .to = (void *)to, .from = (const void *)from, .bytes = 4 * words});
}
