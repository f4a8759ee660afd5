"""Tasks of the tests on emulated devices."""

import contextlib
import ctypes
import functools
import gc
import os
import random
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.emulated_cuda import Emulated, EmulatedArray
from weft.api.group import Group
from weft.datatypes.dtypes import of_numpy
from weft.device.driver import driver
from weft.device.memory import DeviceMemory, address_of
from weft.device.pipeline import Pipeline
from weft.device.readers import ReaderStreams
from weft.device.streams import KeptStreams
from weft.device.tiles import SLOTS

TILE = 64 << 10
INT32 = of_numpy(np.dtype(np.int32))
_NAMES = iter(range(1_000_000))


def emulated():
    return Emulated(driver())


def pipeline_of(group, device=0, tile=TILE, timeout=None):
    """A pipeline over a child of the group."""
    child = group.native.split(list(range(group.size)), f"pipeline {next(_NAMES)}", timeout=timeout)
    return Pipeline(Group(child), driver(), device, tile, timeout=timeout)


def memory_of(array):
    return DeviceMemory(array.address, array.view.nbytes)


def streams_of(device, count):
    with driver().on(device):
        return [driver().new_stream() for _ in range(count)]


def all_types(group, types, operations, elements):
    """Every type and operation, some tiles long; the host's result is the oracle."""
    pipeline = pipeline_of(group)
    device = group.rank % 2
    for name in types:
        for op in operations:
            array = EmulatedArray(driver(), elements, name, device=device)
            array.view[:] = np.arange(elements) % 5 + group.rank
            expected = array.view.copy()
            group.all_reduce(expected, op)
            operation = pipeline.all_reduce(
                memory_of(array), of_numpy(array.view.dtype), op, device=device, stream=0, timeout=10
            )
            assert operation.wait(10)
            assert operation.is_done()
            np.testing.assert_array_equal(array.view, expected, f"{name} {op}")
            array.free()
    pipeline.close()
    return emulated().registered_bytes, emulated().live[0]


def random_programs(group, first, count):
    """Programs of kernels and all-reduces on several streams, against a sequential oracle."""
    pipeline = pipeline_of(group)
    _random_programs(group, pipeline, first, count)
    pipeline.close()


def random_programs_beside_frees(group, first, count):
    """The same, while another thread frees memory, by a driver that waits for the device meanwhile,
    and holds a lock that all its calls take.
    """
    return _programs_beside(lambda: EmulatedArray(driver(), 1000).free(), group, first, count)


def _programs_beside(call, group, first, count):
    """Random programs while another thread makes a call; returns how often it has."""
    pipeline = pipeline_of(group)
    emulated().lock_calls()
    with _again_and_again(call) as times:
        _random_programs(group, pipeline, first, count)
    pipeline.close()
    emulated().allow_everything()
    return times[0]


@contextlib.contextmanager
def _again_and_again(call):
    """Another thread makes a call again and again in the block; yields how often it has."""
    times, ends = [0], threading.Event()

    def repeat():
        while not ends.is_set():
            call()
            times[0] += 1
            time.sleep(1e-3)  # the lock is not fair

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield times
    finally:
        ends.set()
        thread.join()


def _random_programs(group, pipeline, first, count):
    emulation = emulated()
    streams = [streams_of(device, 2) for device in (0, 1)]
    sizes = (7, TILE // 4, TILE // 2 + 33, SLOTS * TILE // 4 + 1)
    arrays = [EmulatedArray(driver(), size, device=place % 2) for place, size in enumerate(sizes)]
    for seed in range(first, first + count):
        _random_program(group, pipeline, emulation, streams, arrays, seed)
    for device in (0, 1):
        with driver().on(device):
            for stream in streams[device]:
                driver().destroy_stream(stream)


def _random_program(group, pipeline, emulation, streams, arrays, seed):
    """One program. Accesses to an array are ordered behind the last one, by an event or a wait.

    The oracle keeps all ranks' arrays, and carries out the program step by step.
    """
    choice = random.Random(seed)
    own = random.Random(f"{seed} {group.rank}")
    oracle = [[np.zeros(len(array.view), np.int32) for array in arrays] for _ in range(group.size)]
    touched = [None] * len(arrays)  # the stream of the last kernel, or the operation under way
    for array in arrays:
        array.view[:] = 0
    with driver().on(0):
        for _ in range(choice.randint(3, 9)):
            place = choice.randrange(len(arrays))
            stream = choice.choice(streams[arrays[place].device])
            if own.random() < 0.4:
                emulation.delay(stream, own.random() * 1e-3)
            _order(stream, touched[place])
            kind = choice.choice(("fill", "add", "reduce", "reduce"))
            if kind == "fill":
                value = choice.randrange(1000)
                emulation.fill(stream, arrays[place], value + group.rank)
                for rank, theirs in enumerate(oracle):
                    theirs[place][:] = value + rank
                touched[place] = stream
            elif kind == "add":
                emulation.add(stream, arrays[place], arrays[place])
                for theirs in oracle:
                    theirs[place] += theirs[place]
                touched[place] = stream
            else:
                operation = pipeline.all_reduce(
                    memory_of(arrays[place]), INT32, "sum", device=arrays[place].device, stream=stream
                )
                total = np.sum([theirs[place] for theirs in oracle], axis=0, dtype=np.int32)
                for theirs in oracle:
                    theirs[place] = total.copy()
                touched[place] = operation
        for before in touched:
            _order(streams[0][0], before)
        driver().synchronize_stream(streams[0][0])
    for place, array in enumerate(arrays):
        np.testing.assert_array_equal(array.view, oracle[group.rank][place], f"program {seed}, array {place}")


def _order(stream, before):
    """Lets a stream wait for the last access to an array."""
    if before is None:
        return
    if isinstance(before, int):
        event = driver().new_event()
        driver().record(event, before)
        driver().wait_for_event(stream, event)
        driver().destroy_event(event)
    else:
        before.wait_on(stream)


def never_waits(group):
    """The caller returns while the device is busy, which it is until all calls have returned; the
    result arrives in the stream's order, and then the handle says so.
    """
    pipeline = pipeline_of(group)
    (stream,) = streams_of(0, 1)
    array = EmulatedArray(driver(), 1000)
    with driver().on(0), emulated().held_up(stream) as let_go_on:
        emulated().fill(stream, array, group.rank + 1)
        operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
        operation.wait_on(stream)
        emulated().add(stream, array, array)
        assert not operation.wait(0.0)
        let_go_on()
        driver().synchronize_stream(stream)
        assert operation.is_done()
    expected = 2 * sum(range(1, group.size + 1))
    assert (array.view == expected).all()
    pipeline.close()


def captures_meanwhile(group, mode):
    """A thread captures a stream while operations of others are called, wait and end."""
    pipeline = pipeline_of(group)
    captured, stream = streams_of(0, 2)
    array, total = EmulatedArray(driver(), SLOTS * TILE), 1
    array.view[:] = group.rank + 1
    begins, ends, valid = threading.Event(), threading.Event(), []

    def capture():
        with emulated().capturing(captured, mode) as end:
            begins.set()
            ends.wait()
            valid.append(end())

    thread = threading.Thread(target=capture)
    thread.start()
    begins.wait()
    for _ in range(3):
        with driver().on(0):
            emulated().delay(stream, 0.01)
        operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
        assert operation.wait(10) and operation.is_done()
        total *= group.size
    other = pipeline_of(group)  # registers memory meanwhile
    other.close()
    ends.set()
    thread.join()
    assert valid == [True]
    assert (array.view == total // group.size * sum(range(1, group.size + 1))).all()
    pipeline.close()


def frees_meanwhile(group):
    """Memory is freed while the device waits for the ranks, of which the others come late, by a
    driver that holds a lock of all its calls until the device is idle.
    """
    pipeline = pipeline_of(group)
    emulated().lock_calls()
    array, other = EmulatedArray(driver(), SLOTS * TILE), EmulatedArray(driver(), 1000)  # several times all slots
    array.view[:] = group.rank
    if group.rank:
        group.recv(np.zeros(1), 0)
    operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=0)
    if not group.rank:
        threading.Timer(0.2, lambda: [group.send(np.zeros(1), peer) for peer in range(1, group.size)]).start()
    other.free()
    assert operation.wait(10)
    assert (array.view == sum(range(group.size))).all()
    pipeline.close()
    emulated().allow_everything()


def refuses_capture(group):
    """Streams under capture cannot communicate; other streams continue."""
    pipeline = pipeline_of(group)
    array = EmulatedArray(driver(), 10)
    capturing, other = streams_of(0, 2)
    operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=other)
    how = {"name": "gather", "device": 0, "stream": capturing}
    foreign = EmulatedArray(driver(), 10, stream=capturing)
    refused = []
    with emulated().capturing(capturing) as end:
        for call in (
            lambda: pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=capturing),
            lambda: pipeline.on_host([memory_of(array)], [], None, **how),
            lambda: pipeline.message([memory_of(array)], [], None, **how),
            lambda: operation.wait_on(capturing),
        ):
            try:
                call()
            except Exception as error:
                refused.append(f"{type(error).__name__}: {error}")
        assert end(), "the capture has not been disturbed"
    with emulated().capturing(capturing):
        try:
            group.all_reduce(foreign)
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")
    group.all_reduce(foreign)
    group._device_arrays.close()
    group._device_arrays = None
    pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=other).wait()
    pipeline.close()
    return refused


def refusing_driver(group, name, code):
    """The driver of rank 1 refuses something. Returns the warnings."""
    if group.rank == 1:
        emulated().refuse(name, code)
    return _without_tiles(group)


def device_breaks(group):
    """Rank 1's device fails in the middle; all ranks are notified, streams end, memory is
    returned.
    """
    pipeline = pipeline_of(group)
    array = EmulatedArray(driver(), 100_000)
    (stream,) = streams_of(0, 1)
    _let_others_come(group, 1)
    errors = _until_failure(pipeline, array, stream, breaks=group.rank == 1)
    emulated().allow_everything()
    pipeline.close()
    pipeline.close()  # the second time does nothing
    return errors, emulated().registered_bytes


class Allocated:
    """Memory whose owner takes an allocator's lock when it is dropped, as torch's tensors do."""

    def __init__(self, lock):
        self.lock = lock

    def __del__(self):
        with self.lock:
            pass


def frees_by_an_allocator(group):
    """An allocator frees memory with its lock held; steps that have ended own memory of it."""
    pipeline = pipeline_of(group)
    emulated().lock_calls()
    lock = threading.Lock()
    array, other = EmulatedArray(driver(), SLOTS * TILE), EmulatedArray(driver(), 1000)
    if group.rank:
        group.recv(np.zeros(1), 0)

    def begin(_, targets, owned):
        del owned
        return group.all_reduce_async(targets[0])

    for _ in range(3):
        owning = functools.partial(begin, owned=Allocated(lock))
        pipeline.on_host([memory_of(other)], [memory_of(other)], owning, device=0, stream=0)
    del owning
    operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=0)
    if not group.rank:
        threading.Timer(0.2, lambda: [group.send(np.zeros(1), peer) for peer in range(1, group.size)]).start()
    with lock:
        EmulatedArray(driver(), 1000).free()
    assert operation.wait(10)
    pipeline.close()
    emulated().allow_everything()


def keeping_the_interpreter(name, kind):
    """A function of the driver that keeps the interpreter lock, as an extension module may."""
    function = getattr(ctypes.PyDLL(driver().path), name)
    function.argtypes = [kind]
    return function


def the_interpreter_is_held(group):
    """A thread waits for the device with the interpreter lock held; another waits for a message of
    the host.
    """
    pipeline, synchronize = pipeline_of(group), keeping_the_interpreter("cuStreamSynchronize", ctypes.c_void_p)
    (stream,) = streams_of(0, 1)
    array = EmulatedArray(driver(), SLOTS * TILE)  # several times all slots
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for number in range(3):
        receiving = threading.Thread(target=group.recv, args=(np.zeros(1), before))
        receiving.start()
        with driver().on(0):
            emulated().delay(stream, 0.3)
            emulated().fill(stream, array, group.rank + number)
            operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
            operation.wait_on(stream)
            assert synchronize(stream) == 0
        assert (array.view == sum(range(number, number + group.size))).all()
        assert operation.is_done()
        group.send(np.zeros(1), after)
        receiving.join()
    pipeline.close()


def random_programs_beside_frees_that_keep_the_interpreter(group, first, count):
    """As `random_programs_beside_frees`, with the interpreter lock held during each free."""
    free = keeping_the_interpreter("cuMemFree_v2", ctypes.c_uint64)
    return _programs_beside(lambda: free(EmulatedArray(driver(), 1000).address), group, first, count)


class Garbage:
    """An array that only the garbage collector frees."""

    def __init__(self):
        self.array = EmulatedArray(driver(), 1000)
        self.itself = self

    def __del__(self):
        self.array.free()


def collects_garbage(group):
    """The garbage collector frees an array, in the thread that makes the next object, while the
    device waits for the ranks.
    """
    pipeline = pipeline_of(group)
    emulated().lock_calls()
    (stream,) = streams_of(0, 1)
    array = EmulatedArray(driver(), SLOTS * TILE)
    gc.collect()
    gc.disable()
    thresholds = gc.get_threshold()
    Garbage()
    with driver().on(0):
        emulated().delay(stream, 0.3)
        operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
    gc.set_threshold(1)
    gc.enable()
    time.sleep(0.6)  # this thread makes no object meanwhile
    gc.set_threshold(*thresholds)
    assert operation.wait(10)
    pipeline.close()
    emulated().allow_everything()


def copy_is_refused(group):
    """A copy of the second tile is refused: the first one is reduced, and the pipeline can be
    closed.
    """
    pipeline, driver_of_pipeline = pipeline_of(group), driver()
    copy, copies = driver_of_pipeline.copy_to_host, []

    def second_refused(*arguments):
        copies.append(arguments)
        if len(copies) == 2:
            emulated().refuse("cuMemcpyDtoHAsync_v2", 1)
        copy(*arguments)

    driver_of_pipeline.copy_to_host = second_refused
    array = EmulatedArray(driver(), TILE)
    error = ""
    try:
        pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=0)
    except Exception as refused:
        error = f"{type(refused).__name__}: {refused}"
    del driver_of_pipeline.copy_to_host
    emulated().allow_everything()
    pipeline.close()
    return error, emulated().registered_bytes


def other_orders(group):
    """Two groups whose operations some ranks call in another order, and a message that is sent
    while an all-reduce waits for its receiver.
    """
    first, second = pipeline_of(group), pipeline_of(group)
    (stream,) = streams_of(0, 1)
    one, other, text = (EmulatedArray(driver(), 100_000) for _ in range(3))
    total = sum(range(1, group.size + 1))
    for _ in range(3):
        pairs = [(first, one), (second, other)]
        operations = []
        for pipeline, array in pairs if group.rank else reversed(pairs):
            with driver().on(0):
                emulated().fill(stream, array, group.rank + 1)
            operations.append(pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream))
        for operation in operations:
            assert operation.wait(10)
        assert (one.view == total).all() and (other.view == total).all()

    def sending(sources, _):
        return group.send_async(sources[0], 1)

    def receiving(_, targets):
        return group.recv_async(targets[0], 0)

    with driver().on(0):
        emulated().fill(stream, text, 7 if group.rank == 0 else 0)
    if group.rank == 1:
        received = first.message([], [memory_of(text)], Waiting(receiving), device=0, stream=stream)
        assert received.wait(10)
        assert (text.view == 7).all()
    operation = first.all_reduce(memory_of(one), INT32, "sum", device=0, stream=stream)
    if group.rank == 0:
        assert first.message([memory_of(text)], [], Waiting(sending), device=0, stream=stream).wait(10)
    with driver().on(0):
        operation.wait_on(stream)
        emulated().add(stream, one, one)
        driver().synchronize_stream(stream)
    assert (one.view == 2 * total * group.size).all()
    first.close()
    second.close()
    return emulated().registered_bytes


class Waiting:
    """Calls a function, and waits for its handle as for torch's."""

    def __init__(self, function):
        self.function = function

    def __call__(self, sources, targets):
        self.work = self.function(sources, targets)
        return self

    def wait(self, _):
        self.work.wait()


def pinned_at_most(group, nbytes):
    """Rank 1 may pin only this many bytes. Returns the warnings."""
    if group.rank == 1:
        emulated().limit_registered(nbytes)
    return _without_tiles(group)


def _without_tiles(group):
    """Operations, some longer than all tiles; returns the warnings, and the memory that is left."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline = pipeline_of(group)
        array, gathered = EmulatedArray(driver(), 3 * SLOTS * TILE), EmulatedArray(driver(), group.size * 200_000)
        (stream,) = streams_of(0, 1)
        with driver().on(0):
            emulated().delay(stream, 0.02)
            emulated().fill(stream, array, group.rank)
        operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
        begin = Waiting(
            lambda sources, targets: group.all_gather_async(sources[0].view(np.int32), targets[0].view(np.int32))
        )
        source = DeviceMemory(array.address, 4 * 200_000)
        total = sum(range(group.size))
        with driver().on(0):
            operation.wait_on(stream)
            emulated().add(stream, array, array)
        following = pipeline.on_host([source], [memory_of(gathered)], begin, device=0, stream=stream)
        assert following.wait(10) and (array.view == 2 * total).all()
        assert (gathered.view == 2 * total).all()
    pipeline.close()
    emulated().allow_everything()
    return [str(one.message) for one in caught], emulated().registered_bytes


def readers(group):
    """A stream that waits for an operation waits for no later one, in any order of requests."""
    pipeline, reading = pipeline_of(group), ReaderStreams(KeptStreams())
    (stream,) = streams_of(0, 1)
    arrays = [EmulatedArray(driver(), 1000) for _ in range(3)]

    def call(array):
        return pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)

    first, second = call(arrays[0]), call(arrays[1])
    assert second.wait(10)
    with driver().on(0), emulated().held_up(stream) as let_go_on:
        third = call(arrays[2])
        assert reading.after(driver(), first) == reading.after(driver(), second), "in order"
        late = reading.after(driver(), third)
        early = reading.after(driver(), second)
        driver().synchronize_stream(early)
        events = [pipeline.queues_of(0).record(one) for one in (early, late, pipeline.queues_of(0).to_device)]
        driver().synchronize_stream(early)
        happened = [driver().has_happened(one.handle) for one in events]
        let_go_on()
    assert third.wait(10)
    pipeline.close()
    return happened


def closes_while_others_wait(group):
    """A thread still returns from the driver when the group is closed, and its events destroyed."""
    pipeline = pipeline_of(group)
    array = EmulatedArray(driver(), 1000)
    operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=0)
    emulated().wake_late(0.3)
    waiting = threading.Thread(target=operation.wait)
    waiting.start()
    while not emulated().waiting:
        time.sleep(1e-3)
    pipeline.close()
    waiting.join()
    emulated().allow_everything()
    assert operation.is_done()
    return emulated().destroyed_in_use


def streams_that_are_kept(group):
    """Pipelines that follow each other use the same streams, which none of them ends."""
    streams, live = KeptStreams(), []
    for number in range(3):
        child = group.native.split(list(range(group.size)), f"kept streams {number}")
        pipeline = Pipeline(Group(child), driver(), 0, TILE, streams)
        array = EmulatedArray(driver(), 1000)
        pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=0).wait()
        pipeline.close()
        live.append(emulated().live)
    return live


def pinned_memory_that_is_used_up(group):
    """Nothing more may be pinned when messages are sent that peers need before an all-reduce which
    waits for them; meanwhile memory is freed, as in `frees_meanwhile`.
    """
    pipeline = pipeline_of(group)
    begin = Waiting(lambda _, targets: group.all_reduce_async(targets[0].view(np.int32)))
    sending = Waiting(lambda sources, _: [group.send_async(sources[0], peer) for peer in range(1, group.size)][-1])
    receiving = Waiting(lambda _, targets: group.recv_async(targets[0], 0))
    (stream,) = streams_of(0, 1)
    array, text = EmulatedArray(driver(), SLOTS * TILE), EmulatedArray(driver(), 1000)
    pipeline.on_host([memory_of(text)], [memory_of(text)], begin, device=0, stream=0).wait()  # pins a block
    emulated().limit_registered(emulated().registered_bytes)
    emulated().lock_calls()
    array.view[:], text.view[:] = group.rank, 7 if group.rank == 0 else 0
    for _ in range(3) if group.rank else ():
        received = pipeline.message([], [memory_of(text)], receiving, device=0, stream=stream)
        assert received.wait(10) and (text.view == 7).all()
    operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=0)
    for _ in () if group.rank else range(3):
        with driver().on(0):
            emulated().delay(stream, 0.1)
        pipeline.message([memory_of(text)], [], sending, device=0, stream=stream)
    EmulatedArray(driver(), 1000).free()
    assert operation.wait(10)
    assert (array.view == sum(range(group.size))).all()
    pipeline.close()
    emulated().allow_everything()
    return emulated().registered_bytes


class ReadsInPlace:
    """A native group over an adapter that reads a device's memory, which is the host's here."""

    def __init__(self, native, registered):
        self._native = native
        self._registered = registered

    def __getattr__(self, name):
        return getattr(self._native, name)

    def reads_device(self, *_):
        return True

    def send_from_device(self, to, tag, address, nbytes, timeout):
        return self._native.send(to, tag, address, nbytes, timeout, None) if self._registered else None


def sends_in_place(group, registered):
    """An adapter reads an array when a kernel has filled it; its registration may have ended."""
    pipeline = pipeline_of(group)
    pipeline.group = ReadsInPlace(pipeline.group, registered)
    (stream,) = streams_of(0, 1)
    array, into = EmulatedArray(driver(), 300_000), np.zeros(300_000, np.int32)
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    for number in range(3):
        with driver().on(0):
            emulated().delay(stream, 0.02)
            emulated().fill(stream, array, 10 * number + group.rank)
        owner = Allocated(threading.Lock())
        held = weakref.ref(owner)
        operation = pipeline.send(memory_of(array), after, 5, device=0, stream=stream)
        operation.keep(owner)
        del owner
        assert held() is not None, "its memory must not be used again before it has been read"
        pipeline.group.receive(before, 5, address_of(into), into.nbytes, None, into).wait()
        with driver().on(0):
            operation.wait_on(stream)
        assert operation.wait(10) and operation.is_done()
        assert (into == 10 * number + before).all()
        while held() is not None:
            time.sleep(1e-3)
    pipeline.close()
    return emulated().registered_bytes


def memory_of_past_sizes(group):
    """Host memory of a large operation is given back when others have followed."""
    pipeline = pipeline_of(group)
    begin = Waiting(lambda _, targets: group.all_reduce_async(targets[0]))
    large, small = EmulatedArray(driver(), 10_000_000), EmulatedArray(driver(), 10)
    before = emulated().registered_bytes
    pipeline.on_host([memory_of(large)], [memory_of(large)], begin, device=0, stream=0).wait()
    after = emulated().registered_bytes
    for _ in range(300):
        operation = pipeline.all_reduce(memory_of(small), INT32, "sum", device=0, stream=0)
    operation.wait()
    left = emulated().registered_bytes
    pipeline.close()
    return before, after, left, emulated().registered_bytes


def peer_dies(group):
    """The last rank's process ends; the others are notified, streams end, memory is returned."""
    pipeline = pipeline_of(group)
    array = EmulatedArray(driver(), 1_000_000)
    (stream,) = streams_of(0, 1)
    _let_others_come(group, group.size - 1)
    if group.rank == group.size - 1:
        for _ in range(3):
            pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
        os._exit(0)
    began = time.monotonic()
    errors = _until_failure(pipeline, array, stream)
    took = time.monotonic() - began
    pipeline.close()
    return errors, took, emulated().registered_bytes


def peer_dies_while_the_interpreter_is_held(group):
    """The same, while each survivor waits for its device with the interpreter lock held."""
    pipeline, synchronize = pipeline_of(group), keeping_the_interpreter("cuStreamSynchronize", ctypes.c_void_p)
    array, reported = EmulatedArray(driver(), 1_000_000), threading.Event()
    (stream,) = streams_of(0, 1)
    for native in (pipeline.group, group.native):
        native.on_failure(lambda _: reported.set())
    _let_others_come(group, group.size - 1)
    error, began = "", time.monotonic()
    try:
        for number in range(1000):
            operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
            if group.rank == group.size - 1 and number == 3:
                os._exit(0)
            with driver().on(0):
                operation.wait_on(stream)
                assert synchronize(stream) == 0
            assert operation.wait(20)
    except Exception as lost:
        error = f"{type(lost).__name__}: {lost}"
    took = time.monotonic() - began
    assert reported.wait(10)
    pipeline.close()
    return error, took, emulated().registered_bytes


def _let_others_come(group, rank):
    """Delays the failing rank until the others have reached this point.

    A barrier would not do: it might fail in those that leave it last.
    """
    if group.rank == rank:
        for _ in range(group.size - 1):
            group.recv(np.zeros(1))
    else:
        group.send(np.zeros(1), rank)


def _until_failure(pipeline, array, stream, breaks=False):
    try:
        for _ in range(1000):
            if breaks:
                with driver().on(0):
                    emulated().delay(stream, 0.1)
            operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
            with driver().on(0):
                operation.wait_on(stream)
            if breaks:
                emulated().break_device()
            assert operation.wait(20)
    except Exception as error:
        emulated().allow_everything()
        with driver().on(0):
            driver().synchronize_stream(stream)  # must not hang
        return f"{type(error).__name__}: {error}"
    return ""


def dlpack(group):
    """Arrays that speak DLPack, through the group's own calls."""
    array = EmulatedArray(driver(), 200_000, np.float32, stream=streams_of(0, 1)[0])
    with driver().on(0):
        emulated().delay(array.stream, 0.05)
        emulated().fill(array.stream, array, int(np.float32(group.rank + 1).view(np.uint32)))
    assert group.all_reduce(array) is array
    expected = sum(range(1, group.size + 1))
    assert (array.view == expected).all()
    managed = EmulatedArray(driver(), 200_000, stream=array.stream, managed=True)
    with driver().on(0):
        emulated().delay(array.stream, 0.05)
        emulated().fill(array.stream, managed, group.rank + 1)
    group.all_reduce(managed)
    assert (managed.view == expected).all()
    work = group.all_reduce_async(array, "avg")
    assert work.wait() is array
    assert work.done
    assert (array.view == expected).all()
    errors = []
    try:
        group.all_reduce(EmulatedArray(driver(), 3, np.float32), "most")
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
    with group.register(array) as handle:
        errors += [handle.transports, handle.refusal]
    group._device_arrays.close()
    group._device_arrays = None
    return errors, emulated().registered_bytes


def dlpack_staged(group):
    """Every other operation on arrays of devices, begun while their contents are pending."""
    size, device = group.size, group.rank % 2
    (stream,) = streams_of(device, 1)

    def later(elements, value=None):
        """An array that is filled by a kernel which has not run yet."""
        array = EmulatedArray(driver(), elements, device=device, stream=stream)
        with driver().on(device):
            emulated().delay(stream, 0.02)
            emulated().fill(stream, array, group.rank + 1 if value is None else value)
        return array

    def is_(array, *expected):
        np.testing.assert_array_equal(array.view, np.repeat(expected, len(array.view) // len(expected)))

    each, total = range(1, size + 1), sum(range(1, size + 1))
    out = later(5000, 0)
    assert group.all_reduce(later(5000), out=out) is out
    is_(out, total)
    on_host = np.zeros(5000, np.int32)
    group.all_reduce(later(5000), out=on_host)
    assert (on_host == total).all()
    x = later(700)
    assert group.broadcast(x, 1) is x
    is_(x, 2)
    x = later(700)
    group.reduce(x, 1)
    is_(x, total if group.rank == 1 else group.rank + 1)
    out = later(70 * size, 0)
    group.all_gather(later(70), out)
    is_(out, *each)
    out = later(70, 0)
    group.reduce_scatter_async(later(70 * size), out=out).wait()
    is_(out, total)
    out = later(70 * size, 0)
    group.all_to_all(later(70 * size), out=out)
    is_(out, *each)
    out = later(70 * size, 0)
    group.gather(later(70), 1, out if group.rank == 1 else None)
    is_(out, *(each if group.rank == 1 else [0]))
    out = later(70, 0)
    group.scatter(later(70 * size) if group.rank == 1 else None, 1, out)
    is_(out, 2)
    into, source = later(9000, 0), later(9000)
    with group.register(source):  # it makes no difference without an adapter
        sending = group.send_async(source, (group.rank + 1) % size)
        assert group.recv(into) == (group.rank - 1) % size
        sending.wait()
    is_(into, (group.rank - 1) % size + 1)
    buffer, into, source = group.symmetric(40, np.int32), later(40, 0), later(40)
    group.barrier()
    with group.register(source):
        buffer.put_signal((group.rank + 1) % size, source)
    buffer.wait_signal()
    buffer.get(group.rank, out=into)
    is_(into, (group.rank - 1) % size + 1)
    return emulated().registered_bytes


def other_collectives(group):
    """Host work between copies: another piece is read than is written."""
    pipeline = pipeline_of(group)
    source, target = EmulatedArray(driver(), 1000), EmulatedArray(driver(), 1000 * group.size)
    source.view[:] = group.rank

    class Waited:
        def __init__(self, work):
            self.work = work

        def wait(self, _):
            self.work.wait()

    def begin(sources, targets):
        work = group.all_gather_async(sources[0].view(np.int32), targets[0].view(np.int32))
        return Waited(work)

    for _ in range(70):  # more than may be under way
        operation = pipeline.on_host([memory_of(source)], [memory_of(target)], begin, device=0, stream=0)
    operation.wait()
    pipeline.close()
    np.testing.assert_array_equal(target.view, np.repeat(np.arange(group.size), 1000))
    return emulated().registered_bytes


def waits_cheaply(group, seconds):
    """Ranks wait for rank 0's device: the share of a core that it takes, less the emulation's."""
    pipeline = pipeline_of(group)
    (stream,) = streams_of(0, 1)
    array = EmulatedArray(driver(), 1000)
    group.barrier()
    used, theirs = time.process_time(), emulated().processor_seconds
    began = time.monotonic()
    if group.rank == 0:
        with driver().on(0):
            emulated().delay(stream, seconds)
    operation = pipeline.all_reduce(memory_of(array), INT32, "sum", device=0, stream=stream)
    assert operation.wait(seconds + 10)
    took = time.monotonic() - began
    own = time.process_time() - used - (emulated().processor_seconds - theirs)
    pipeline.close()
    return own / took
