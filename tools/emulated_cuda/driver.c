/* The part of the CUDA driver's interface that weft uses, emulated by threads.

   Devices are two, their memory is the process's. A stream is a thread that carries out what was
   put into it, in order. Each device has a copy engine for each direction, with a latency and a
   rate. Engines and streams keep a clock of their own, so that a sleep that ends late does not
   make everything behind it late. What the real driver would let pass by accident is refused:
   asynchronous copies of host memory that is not registered, and copies of device memory that was
   not allocated.

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
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
};
enum { DEVICES = 2, RANGES_MAX = 4096, REFUSED_MAX = 8, CONTEXTS_MAX = 16 };
enum { TO_HOST, TO_DEVICE, DIRECTIONS };
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
    int file; /* of device memory: what it is exported by */
} Range;

typedef struct {
    Range ranges[RANGES_MAX];
    int count;
    uint64_t bytes;
} Ranges;

static Ranges registered, allocated;

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

static Result refusal(const char *name) {
    for (int i = 0; i < REFUSED_MAX; i++)
        if (strcmp(refused[i].name, name) == 0) return refused[i].result;
    return SUCCESS;
}

#define MAY_BE_REFUSED()                          \
    do {                                          \
        Result answer_ = refusal(__func__);       \
        if (answer_ != SUCCESS) return answer_;   \
    } while (0)

/* Events. Who waits for one waits for its last record; a later one changes nothing for him. */

typedef struct {
    pthread_cond_t changed;
    int done;
    double done_at;
    int references;
} Record;

typedef struct {
    Record *latest; /* NULL: there was none yet */
} Event;

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

/* Streams. */

typedef enum { COPY, RECORD, WAIT_EVENT, WAIT_VALUE, DELAY, FILL, ADD } Kind;

typedef struct Operation {
    struct Operation *next;
    Kind kind;
    double issued_at;
    int direction;
    void *to;
    const void *from;
    uint64_t bytes;
    Record *record;
    volatile uint32_t *word;
    uint32_t value;
    double seconds;
} Operation;

typedef struct {
    pthread_t thread;
    pthread_cond_t changed;
    Operation *first, *last;
    uint64_t issued, ended;
    double ready_at;
    int device, capturing, closing;
} Stream;

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
    while ((int32_t)(__atomic_load_n(op->word, __ATOMIC_ACQUIRE) - op->value) < 0) {
        sleep_until(now() + POLL_S);
        waited = 1;
    }
    if (waited) stream->ready_at = now();
}

static void carry_out(Stream *stream, Operation *op) {
    stream->ready_at = later(stream->ready_at, op->issued_at);
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
        pthread_mutex_unlock(&everything);
        carry_out(stream, op);
        pthread_mutex_lock(&everything);
        stream->first = op->next;
        if (stream->first == NULL) stream->last = NULL;
        stream->ended++;
        pthread_cond_broadcast(&stream->changed);
        free(op);
    }
    pthread_mutex_unlock(&everything);
    return NULL;
}

static Stream *new_stream(int device) {
    Stream *stream = calloc(1, sizeof *stream);
    stream->device = device;
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
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&everything);
    return SUCCESS;
}

Result cuInit(unsigned flags) {
    MAY_BE_REFUSED();
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
    MAY_BE_REFUSED();
    (void)flags;
    if (current_device() < 0) return INVALID_CONTEXT;
    if (start == NULL || bytes == 0) return INVALID_VALUE;
    /* Pages that are pinned are there. Others may be writing to them. */
    for (size_t at = 0; at < bytes; at += 4096) __atomic_fetch_add((char *)start + at, 0, __ATOMIC_RELAXED);
    pthread_mutex_lock(&everything);
    Result result = SUCCESS;
    if (overlaps(&registered, (uint64_t)start, bytes)) {
        result = ALREADY_REGISTERED;
    } else if (!add_range(&registered, (uint64_t)start, bytes, -1, -1)) {
        result = INVALID_VALUE;
    }
    pthread_mutex_unlock(&everything);
    return result;
}

Result cuMemHostUnregister(void *start) {
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

Result cuMemAlloc_v2(Address *device, size_t bytes) {
    MAY_BE_REFUSED();
    if (current_device() < 0) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    int file = memfd_create("emulated device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)in_pages(bytes)) != 0) return OUT_OF_MEMORY;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return OUT_OF_MEMORY;
    pthread_mutex_lock(&everything);
    int kept = add_range(&allocated, (uint64_t)memory, bytes, current_device(), file);
    pthread_mutex_unlock(&everything);
    if (!kept) {
        munmap(memory, bytes);
        close(file);
        return OUT_OF_MEMORY;
    }
    *device = (Address)memory;
    return SUCCESS;
}

Result cuMemFree_v2(Address device) {
    pthread_mutex_lock(&everything);
    Range range = remove_range(&allocated, device);
    pthread_mutex_unlock(&everything);
    if (range.start == 0) return INVALID_VALUE;
    munmap((void *)device, range.bytes);
    close(range.file);
    return SUCCESS;
}

Result cuMemGetAddressRange_v2(Address *base, size_t *bytes, Address address) {
    pthread_mutex_lock(&everything);
    Range *range = range_of(&allocated, address, 1);
    if (range != NULL) *base = range->start, *bytes = range->bytes;
    pthread_mutex_unlock(&everything);
    return range != NULL ? SUCCESS : NOT_FOUND;
}

/* Of whole allocations only, as their files begin where they do. */
Result cuMemGetHandleForAddressRange(int *handle, Address start, size_t bytes, int kind, unsigned long long flags) {
    MAY_BE_REFUSED();
    pthread_mutex_lock(&everything);
    Range *range = range_of(&allocated, start, 1);
    int whole = range != NULL && range->start == start && in_pages(range->bytes) == bytes;
    if (whole) *handle = fcntl(range->file, F_DUPFD_CLOEXEC, 0);
    pthread_mutex_unlock(&everything);
    if (!whole || kind != HANDLE_DMA_BUF || flags != 0) return INVALID_VALUE;
    return *handle >= 0 ? SUCCESS : OUT_OF_MEMORY;
}

static Result copied(int direction, void *to, const void *from, size_t bytes, Stream *handle, int any_host) {
    const void *host = direction == TO_HOST ? to : from, *device = direction == TO_HOST ? from : to;
    pthread_mutex_lock(&everything);
    Range *there = range_of(&allocated, (uint64_t)device, bytes);
    int known = there != NULL && (any_host || range_of(&registered, (uint64_t)host, bytes) != NULL);
    pthread_mutex_unlock(&everything);
    if (!known) return INVALID_VALUE;
    return put(handle, (Operation){.kind = COPY, .direction = direction, .to = to, .from = from, .bytes = bytes});
}

Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *stream) {
    MAY_BE_REFUSED();
    return copied(TO_HOST, to, (const void *)from, bytes, stream, 0);
}

Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *stream) {
    MAY_BE_REFUSED();
    return copied(TO_DEVICE, (void *)to, from, bytes, stream, 0);
}

Result cuStreamCreate(Stream **stream, unsigned flags) {
    (void)flags;
    if (current_device() < 0) return INVALID_CONTEXT;
    *stream = new_stream(current_device());
    pthread_mutex_lock(&everything);
    live_streams++;
    pthread_mutex_unlock(&everything);
    return SUCCESS;
}

Result cuStreamDestroy_v2(Stream *stream) {
    if (stream == NULL) return INVALID_HANDLE;
    pthread_mutex_lock(&everything);
    stream->closing = 1;
    live_streams--;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&everything);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->changed);
    free(stream);
    return SUCCESS;
}

Result cuStreamSynchronize(Stream *handle) {
    Stream *stream = stream_of(handle);
    if (stream == NULL) return INVALID_CONTEXT;
    pthread_mutex_lock(&everything);
    uint64_t issued = stream->issued;
    while (stream->ended < issued) pthread_cond_wait(&stream->changed, &everything);
    pthread_mutex_unlock(&everything);
    return SUCCESS;
}

/* Copies of any host memory, which the caller waits for. */

Result cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
    MAY_BE_REFUSED();
    Result result = copied(TO_HOST, to, (const void *)from, bytes, NULL, 1);
    return result != SUCCESS ? result : cuStreamSynchronize(NULL);
}

Result cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
    MAY_BE_REFUSED();
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

Result cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    if (event == NULL || flags != 0) return INVALID_HANDLE;
    Record *record = latest(event);
    if (record == NULL) return SUCCESS;
    Result result = put(stream, (Operation){.kind = WAIT_EVENT, .record = record});
    release_latest(record);
    return result;
}

Result cuStreamWaitValue32_v2(Stream *stream, Address word, uint32_t value, unsigned flags) {
    MAY_BE_REFUSED();
    pthread_mutex_lock(&everything);
    int known = range_of(&registered, word, 4) != NULL;
    pthread_mutex_unlock(&everything);
    if (!known || flags != 0 || word % 4 != 0) return INVALID_VALUE;
    return put(stream, (Operation){.kind = WAIT_VALUE, .word = (volatile uint32_t *)word, .value = value});
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
    if (event == NULL) return INVALID_HANDLE;
    pthread_mutex_lock(&everything);
    live_events--;
    release_record(event->latest);
    pthread_mutex_unlock(&everything);
    free(event);
    return SUCCESS;
}

Result cuEventRecord(Event *event, Stream *stream) {
    MAY_BE_REFUSED();
    if (event == NULL) return INVALID_HANDLE;
    Record *record = new_record();
    Result result = put(stream, (Operation){.kind = RECORD, .record = record});
    pthread_mutex_lock(&everything);
    release_record(event->latest);
    event->latest = record;
    pthread_mutex_unlock(&everything);
    return result;
}

Result cuEventQuery(Event *event) {
    Record *record = latest(event);
    if (record == NULL) return SUCCESS;
    pthread_mutex_lock(&everything);
    Result result = record->done ? SUCCESS : NOT_READY;
    release_record(record);
    pthread_mutex_unlock(&everything);
    return result;
}

Result cuEventSynchronize(Event *event) {
    MAY_BE_REFUSED();
    Record *record = latest(event);
    if (record == NULL) return SUCCESS;
    pthread_mutex_lock(&everything);
    wait_for_record(record);
    release_record(record);
    pthread_mutex_unlock(&everything);
    return SUCCESS;
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
            : result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == 100 ? "CUDA_ERROR_NO_DEVICE"
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

void emulated_allow_everything(void) { memset(refused, 0, sizeof refused); }

void emulated_capture(Stream *stream, int capturing) { stream_of(stream)->capturing = capturing; }

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
