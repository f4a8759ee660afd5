"""Tests of the parameter server with real connections: servers and workers are threads of the test.

Those that kill processes are in `test_parameter_server_failures.py`.
"""

import contextlib
import threading
import time

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn

import weft
from weft.processes.ports import free_ports
from weft.torch.parameter_server import (
    Largest,
    Limits,
    RequestTooLarge,
    ServedEmbedding,
    Server,
    ServerError,
    ServerLost,
    ServerOptimizer,
    Service,
    ServiceOptions,
    ShardLost,
    StalePlan,
    TooManyWorkers,
    UnknownShard,
    Worker,
    WrongShape,
    local_server,
)

DEADLINE_SECONDS = 60.0
SGD = ServerOptimizer("sgd", lr=0.1)


def address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


@contextlib.contextmanager
def servers(count, **options):
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(Server(address(), **options)) for _ in range(count)]
        yield [server.address for server in started]


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3))


def batch(worker, step):
    generator = torch.Generator().manual_seed(1000 * worker + step)
    inputs = torch.randn(8, 10, generator=generator)
    return inputs, (inputs.sum(1) > 0).long()


def train(worker, number, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        inputs, labels = batch(number, step)
        loss = F.cross_entropy(worker(inputs), labels)
        loss.backward()
        worker.step()
        losses.append(loss.item())
    worker.wait()
    return losses


def together(*jobs):
    """Runs functions in threads; returns their results. One that fails or hangs fails the test."""
    results, errors = [None] * len(jobs), []

    def run(place, one):
        try:
            results[place] = one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(jobs)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + DEADLINE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a worker hangs"
    return results


def trained(addresses, count, steps, optimizer=SGD, make=model, **options):
    """Returns the final parameters of `count` workers."""
    models = [make() for _ in range(count)]

    def work(number):
        with Worker(
            models[number], optimizer, addresses, name=f"w{number}", workers=count, bucket_bytes=1 << 18, **options
        ) as worker:
            train(worker, number, steps)
            return [parameter.detach().clone() for parameter in models[number].parameters()]

    return together(*(lambda number=number: work(number) for number in range(count)))


def averaged(count, steps, optimizer):
    """The same training in one process, by the average gradient."""
    reference = model()
    for step in range(steps):
        gradients = []
        for number in range(count):
            reference.zero_grad()
            inputs, labels = batch(number, step)
            F.cross_entropy(reference(inputs), labels).backward()
            gradients.append([parameter.grad.clone() for parameter in reference.parameters()])
        for parameter, *parts in zip(reference.parameters(), *gradients, strict=True):
            parameter.grad = sum(parts[1:], parts[0]) / count
        optimizer(reference).step() if callable(optimizer) else optimizer.step()
    return list(reference.parameters())


# Synchronous.


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_no_staleness_equals_averaged_gradients_bit_by_bit(transport):
    with servers(2, transport=transport) as addresses:
        found = trained(addresses, 3, 5, transport=transport)
    reference = averaged(3, 5, lambda net: torch.optim.SGD(net.parameters(), 0.1))
    for parameters in found:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(parameters, reference, strict=True))


def test_pulls_overlap_pushes_and_change_per_step():
    net = model()
    with servers(1) as addresses, Worker(net, SGD, addresses, bucket_bytes=1 << 18) as worker:
        train(worker, 0, 1)
        before = [parameter.detach().clone() for parameter in net.parameters()]
        inputs, labels = batch(0, 1)
        outputs = worker(inputs)
        F.cross_entropy(outputs, labels).backward()
        coming = [pull for bucket in worker._buckets for pull in bucket.pulls.values()]
        assert len(coming) == sum(len(bucket.pieces) for bucket in worker._buckets)
        for pull in coming:
            pull.result(DEADLINE_SECONDS)
        assert all(torch.equal(mine, old) for mine, old in zip(net.parameters(), before, strict=True))
        assert torch.equal(worker(inputs), outputs)
        worker.step()
        worker.wait()
        reference = averaged(1, 2, lambda net: torch.optim.SGD(net.parameters(), 0.1))
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(net.parameters(), reference, strict=True))


def test_connections_are_authenticated_and_encrypted():
    good = {"secret": "0123456789abcdef-good", "encrypt": "1", "transport": "tcp"}
    with servers(1, **good) as addresses:
        trained(addresses, 1, 2, **good)
        with pytest.raises(weft.AuthError):
            Worker(model(), SGD, addresses, **{**good, "secret": "0123456789abcdef-evil"})
        trained(addresses, 1, 1, **good)


@pytest.mark.parametrize("wire_format", ["fp16", "bf16"])
def test_16_bit_values_travel_and_servers_keep_32(wire_format):
    with servers(2) as addresses:
        (found,) = trained(addresses, 1, 5, wire_format=wire_format)
    reference = averaged(1, 5, lambda net: torch.optim.SGD(net.parameters(), 0.1))
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[wire_format]
    for mine, theirs in zip(found, reference, strict=True):
        assert torch.equal(mine, mine.to(dtype).float()), "what was pulled is 16 bits wide"
        torch.testing.assert_close(mine, theirs, atol=2e-2, rtol=2e-2)


def test_largest_gradients_train_and_the_rest_is_kept():
    with (
        servers(2) as addresses,
        Worker(model(), ServerOptimizer("sgd", lr=0.5), addresses, compression=Largest(0.05)) as worker,
    ):
        losses = train(worker, 0, 60)
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])
    compression = Largest(0.1)
    gradient = torch.randn(1000)
    places, values = compression.compress("key", gradient, torch.float32)
    sent = torch.zeros(1000).index_add_(0, places.long(), values)
    torch.testing.assert_close(sent + compression._residuals["key"], gradient)
    assert 50 <= places.numel() <= 200


def test_no_sync_accumulates_and_unused_parameters_pass():
    net = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4)})
    reference = nn.Linear(4, 4)
    reference.load_state_dict(net["used"].state_dict())
    unused = net["unused"].weight.detach().clone()
    inputs = torch.randn(2, 3, 4)
    with servers(2) as addresses, Worker(net, SGD, addresses, bucket_bytes=16) as worker:
        with worker.no_sync():
            net["used"](inputs[0]).sum().backward()
        net["used"](inputs[1]).sum().backward()
        worker.step()
        worker.wait()
        with pytest.raises(weft.ArgumentError, match="second gradient in one step"):
            for _ in range(2):
                net["used"](inputs[0]).sum().backward()
    optimizer = torch.optim.SGD(reference.parameters(), 0.1)
    (reference(inputs[0]).sum() + reference(inputs[1]).sum()).backward()
    optimizer.step()
    torch.testing.assert_close(net["used"].weight, reference.weight)
    assert torch.equal(net["unused"].weight, unused)


def test_a_parameter_that_is_unfrozen_later_is_refused():
    """Servers do not keep it: it would be trained by this worker alone."""
    net = model()
    first = next(iter(net.named_parameters()))
    first[1].requires_grad_(False)
    with servers(1) as addresses, Worker(net, SGD, addresses) as worker:
        worker.step()
        first[1].requires_grad_(True)
        with pytest.raises(weft.UnsupportedError, match=first[0]):
            worker.step()


def test_a_learning_rate_of_the_workers_own():
    net = nn.Linear(3, 1, bias=False)
    before = net.weight.detach().clone()
    with servers(1) as addresses, Worker(net, SGD, addresses) as worker:
        worker.learning_rate = 2.0
        worker(torch.ones(1, 3)).sum().backward()
        worker.step()
        assert torch.equal(net.weight, before - 2.0), "looking at a parameter waits for it"


# Asynchronous.


@pytest.mark.parametrize("staleness", [1, 3])
def test_no_worker_exceeds_the_staleness_bound(staleness):
    ahead = []
    steps = {0: 0, 1: 0}
    as_far_as_allowed = threading.Event()  # the slow one's first step lasts until the fast one is there

    def work(addresses, number, net):
        with Worker(net, SGD, addresses, workers=2, staleness=staleness) as worker:
            for step in range(8):
                inputs, labels = batch(number, step)
                loss = F.cross_entropy(worker(inputs), labels)  # has waited for the parameters
                ahead.append(steps[number] - steps[1 - number])
                if ahead[-1] >= staleness:
                    as_far_as_allowed.set()
                loss.backward()
                if number == 1:
                    assert as_far_as_allowed.wait(DEADLINE_SECONDS), "the fast one goes ahead"
                steps[number] += 1  # before the push, so that the other is not counted as behind
                worker.step()
                if number == 1:
                    time.sleep(0.03)

    nets = [model(), model()]
    with servers(2) as addresses:
        together(*(lambda number=number: work(addresses, number, nets[number]) for number in range(2)))
    assert max(ahead) == staleness


def test_unbounded_worker_never_waits_and_reports_staleness():
    nets = [nn.Linear(4, 1), nn.Linear(4, 1)]
    with servers(1) as addresses:
        with Worker(nets[0], SGD, addresses, name="fast", workers=2, staleness=None) as fast:
            slow = Worker(nets[1], SGD, addresses, name="slow", workers=2, staleness=None)
            slow(torch.ones(1, 4)).sum().backward  # noqa: B018  # has its parameters now
            for _ in range(5):
                fast(torch.ones(1, 4)).sum().backward()
                fast.step()
            fast.wait()
            slow(torch.ones(1, 4)).sum().backward()
            slow.step()
            slow.wait()
            (statistics,) = fast.statistics()
        slow.close()
    staleness = {worker.split("/")[0]: counts for worker, counts in statistics["staleness"].items()}
    assert staleness == {"fast": {"0": 5}, "slow": {"5": 1}}


def test_the_rate_of_a_stale_push_is_divided():
    nets = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    options = {"workers": 2, "staleness": None, "correct_staleness": True}
    with servers(1) as addresses:
        first = Worker(nets[0], SGD, addresses, **options)
        second = Worker(nets[1], SGD, addresses, **options)
        begin = nets[1].weight.item()
        start = nets[0].weight.item()
        assert begin == start
        for _ in range(4):
            first(torch.ones(1, 1)).sum().backward()
            first.step()
        first.wait()
        second(torch.ones(1, 1)).sum().backward()
        second.step()
        second.wait()
        assert nets[1].weight.item() == pytest.approx(start - 4 * 0.1 - 0.1 / 4)
        first.close()
        second.close()


# Rows.


class Words(nn.Module):
    """The mean of some words' rows, and a linear layer."""

    def __init__(self, embedding):
        super().__init__()
        self.words = embedding
        torch.manual_seed(5)
        self.head = nn.Linear(8, 3)

    def forward(self, numbers):
        return self.head(self.words(numbers).mean(1))


def words(worker, step):
    generator = torch.Generator().manual_seed(77 * worker + step)
    return torch.randint(0, 40, (6, 4), generator=generator), torch.randint(0, 3, (6,), generator=generator)


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_train_as_a_whole_table_would(workers):
    nets = [Words(ServedEmbedding(40, 8)) for _ in range(workers)]
    everything = torch.arange(40)
    start, finish = [], []

    def work(number, addresses):
        with Worker(nets[number], SGD, addresses, name=f"w{number}", workers=workers) as worker:
            if number == 0:
                start.append(worker.pull_rows("words", everything))
            for step in range(4):
                numbers, labels = words(number, step)
                F.cross_entropy(worker(numbers), labels).backward()
                worker.step()
            if number == 0:
                finish.append(worker.pull_rows("words", everything))

    with servers(3) as addresses:
        together(*(lambda number=number: work(number, addresses) for number in range(workers)))
    reference = Words(nn.Embedding.from_pretrained(start[0].clone(), freeze=False))
    optimizer = torch.optim.SGD(reference.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad()
        for number in range(workers):
            numbers, labels = words(number, step)
            (F.cross_entropy(reference(numbers), labels) / workers).backward()
        optimizer.step()
    torch.testing.assert_close(finish[0], reference.words.weight.detach())
    assert not torch.equal(start[0], finish[0])
    assert start[0].std().item() == pytest.approx(1.0, abs=0.15)


def test_worker_holds_only_the_used_rows():
    embedding = ServedEmbedding(300_000, 8, deviation=0.1)
    net = Words(embedding)
    with servers(2) as addresses, Worker(net, ServerOptimizer("adam", lr=0.01), addresses) as worker:
        assert sum(worker.plan.server_bytes()) > 300_000 * 8 * 4
        losses = []
        for _ in range(15):
            numbers = torch.tensor([[1, 299_999], [77, 150_000]])
            loss = F.cross_entropy(worker(numbers), torch.tensor([0, 1]))
            loss.backward()
            worker.step()
            losses.append(loss.item())
        with pytest.raises(weft.ArgumentError, match="expected numbers from 0 to 299999"):
            worker(torch.tensor([[300_000]]))
    assert losses[-1] < losses[0]
    assert embedding.rows_held_max == 4
    assert not list(embedding.parameters())
    with pytest.raises(weft.ConfigError, match="needs a Worker"):
        ServedEmbedding(4, 2)(torch.tensor([0]))


def test_a_table_that_is_the_whole_model_is_refused():
    with pytest.raises(weft.ArgumentError, match=r"Put it into one, such as torch\.nn\.Sequential\(table\)"):
        Worker(ServedEmbedding(4, 2), SGD, ["127.0.0.1:1"])


# Refusals, limits, fairness.


def link(worker):
    return worker._links[0]


@pytest.mark.parametrize(
    ("fields", "tensors", "kind", "why"),
    [
        ({"kind": "push", "key": "99.0", "number": 1}, [], UnknownShard, "this server has 0.0"),
        ({"kind": "pull", "key": "99.0", "number": 0}, [], UnknownShard, "'99.0'"),
        ({"kind": "push", "key": "0.0", "number": 1}, [torch.zeros(7)], WrongShape, "expected 1 of 3"),
        ({"kind": "push", "key": "0.0", "number": 1}, [torch.zeros(3, dtype=torch.int64)], WrongShape, "int64"),
        (
            {"kind": "push", "key": "0.0", "number": 1, "sparse": True},
            [torch.tensor([3]), torch.ones(1)],
            WrongShape,
            "has 3",
        ),
        (
            {"kind": "push", "key": "table t", "number": 1},
            [torch.tensor([9]), torch.ones(2)],
            WrongShape,
            "not below 5",
        ),
        (
            {"kind": "push", "key": "table t", "number": 1},
            [torch.tensor([1, 1]), torch.ones(4)],
            WrongShape,
            "more than once",
        ),
        ({"kind": "pull", "key": "table t", "number": 0}, [torch.tensor([-1])], WrongShape, "rows that are not"),
        ({"kind": "push", "key": "0.0", "number": 5}, [torch.zeros(3)], weft.Error, "push 1 has not arrived"),
        ({"kind": "push", "key": "0.0", "number": "x"}, [torch.zeros(3)], ServerError, "expected an integer"),
        ({"kind": "push", "key": "0.0", "number": 1, "lr": -1}, [torch.zeros(3)], ServerError, "lr=-1"),
        ({"kind": "dance", "key": "0.0"}, [], ServerError, "'dance'"),
        ({}, [], ServerError, "None"),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(fields, tensors, kind, why):
    net = nn.ModuleDict({"t": ServedEmbedding(5, 2), "head": nn.Linear(3, 1, bias=False)})
    with servers(1) as addresses, Worker(net, SGD, addresses) as worker:
        worker.wait()
        before = net["head"].weight.detach().clone()
        with pytest.raises(kind, match=why):
            link(worker).request(0, (fields, tensors))
        worker.step()
        worker.wait()
        assert torch.equal(net["head"].weight, before)


def test_another_plan_is_refused():
    with servers(1) as addresses, Worker(nn.Linear(3, 1), SGD, addresses) as worker:
        for other, options in ((nn.Linear(3, 2), {}), (nn.Linear(3, 1), {"staleness": 2})):
            with pytest.raises(StalePlan, match="all workers need the same"):
                Worker(other, SGD, addresses, **options)
        with pytest.raises(StalePlan, match="optimizer"):
            Worker(nn.Linear(3, 1), ServerOptimizer("sgd", lr=0.2), addresses)
        train_one(worker)


def train_one(worker):
    worker(torch.ones(1, 3)).sum().backward()
    worker.step()
    worker.wait()


def test_limits_of_a_server():
    service = Service(ServiceOptions(shard_bytes=1 << 20, workers_max=1))
    with servers(1, service=service, limits=Limits(tensor_bytes=1 << 16)) as addresses:
        with pytest.raises(ServerError, match="keeps at most 1048576"):
            Worker(nn.Linear(1000, 1000), SGD, addresses)
        with Worker(nn.Linear(3, 1), SGD, addresses) as worker:
            with pytest.raises(TooManyWorkers):
                Worker(nn.Linear(3, 1), SGD, addresses)
            channel = link(worker)._channel
            with pytest.raises(weft.Aborted, match="RequestTooLarge"):
                channel.send(0, ({"kind": "push", "key": "0.0", "number": 1}, [torch.zeros(1 << 15)]))
            train_one(worker)  # over a new connection
            assert worker.reconnections == 1


def test_answers_are_limited_too():
    with servers(1) as addresses, pytest.raises(RequestTooLarge, match="at most 1000 are allowed"):
        Worker(nn.Linear(300, 1), SGD, addresses, limits=Limits(tensor_bytes=1000)).wait()


def test_a_busy_worker_does_not_hold_up_another():
    done = threading.Event()

    def flood(worker):
        while not done.is_set():
            link(worker).request(1, ({"kind": "statistics"}, []))
            train(worker, 0, 1)

    with servers(1) as addresses:
        busy = [Worker(model(), SGD, addresses, staleness=None) for _ in range(3)]
        calm = Worker(model(), SGD, addresses, staleness=None)
        threads = [threading.Thread(target=flood, args=(worker,), daemon=True) for worker in busy]
        for thread in threads:
            thread.start()
        waits = []
        for _ in range(10):
            begin = time.monotonic()
            link(calm).request(1, ({"kind": "statistics"}, []))
            waits.append(time.monotonic() - begin)
            time.sleep(0.01)
        done.set()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        for worker in (*busy, calm):
            worker.close()
    assert sorted(waits)[5] < 1.0


# Coming and going.


def test_a_worker_joins_later_and_leaves_earlier():
    nets = [model() for _ in range(3)]
    with servers(2) as addresses:
        first = Worker(nets[0], SGD, addresses, name="a")
        train(first, 0, 3)
        second = Worker(nets[1], SGD, addresses, name="b")
        together(lambda: train(first, 0, 4, 3), lambda: train(second, 1, 4))
        assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))
        second.close()
        train(first, 0, 3, 7)
        assert first.statistics()[0]["updates"]["0.0"] == 10
        first.close()


def test_statistics_do_not_answer_a_pending_pull():
    net = model()
    with servers(2) as addresses, Worker(net, SGD, addresses, name="a") as worker:
        for step in range(20):
            inputs, labels = batch(0, step)
            F.cross_entropy(worker(inputs), labels).backward()
            worker.step()
            assert all("staleness" in statistics for statistics in worker.statistics())


def test_workers_continue_after_abrupt_disconnect():
    nets = [model() for _ in range(2)]
    with servers(2) as addresses:
        workers = [Worker(net, SGD, addresses, name=f"w{n}", workers=2) for n, net in enumerate(nets)]
        together(*(lambda n=n: train(workers[n], n, 2) for n in range(2)))
        for one in workers[1]._links:
            one._channel.close()
        train(workers[0], 0, 3, 2)
        workers[1].statistics()  # over new connections it is a member again, and its pushes count on
        together(*(lambda n=n: train(workers[n], n, 2, 5) for n in range(2)))
        assert workers[1].reconnections == 2
        assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))
        assert len(workers[0].statistics()[0]["members"]) == 2
        for worker in workers:
            worker.close()


def test_applied_push_is_not_applied_again():
    net = nn.Linear(3, 1, bias=False)
    with servers(1) as addresses, Worker(net, SGD, addresses) as worker:
        worker.wait()
        before = net.weight.detach().clone()
        push = ({"kind": "push", "key": "0.0", "number": 1}, [torch.ones(3)])
        assert link(worker).request(0, push)[0] == {"staleness": 0}
        link(worker)._channel.close()
        assert link(worker).request(0, push)[0] == {"repeated": True}
        _, (values,) = link(worker).request(1, ({"kind": "pull", "key": "0.0", "number": 1}, []))
        torch.testing.assert_close(values, before.view(-1) - 0.1)
        assert worker.statistics()[0]["repeated"] == 1


def test_the_second_server_takes_over():
    net, other = model(), model()
    second = Server(address())
    first = Server(address(), second=second.address)
    both = [f"{first.address}+{second.address}"]
    with Worker(net, SGD, both, server_timeout=20) as worker:
        train(worker, 0, 3)
        first.close()
        train(worker, 0, 3, 3)
        assert worker.reconnections == 1
    second.close()
    with servers(1) as addresses, Worker(other, SGD, addresses) as worker:
        train(worker, 0, 6)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_second_server_waits_for_first_to_end():
    with (
        Server(address()) as second,
        Server(address(), second=second.address),
        pytest.raises(ServerLost, match="takes over when"),
    ):
        Worker(model(), SGD, [second.address], server_timeout=0.5)


def test_absent_or_emptied_server_is_reported():
    with pytest.raises(ServerLost, match="no parameter server at"):
        Worker(model(), SGD, [address()], server_timeout=0.5)
    server = Server(address())
    worker = Worker(model(), SGD, [server.address], server_timeout=20)
    train(worker, 0, 1)
    server.close()
    with Server(server.address), pytest.raises(ShardLost, match="without its shard"):
        train(worker, 0, 1)
    with pytest.raises(weft.Error):
        worker.close()


# Layouts and algorithms in process groups.


def shards_on_every_rank(rank, size):
    server, addresses = local_server()
    net = model()
    with Worker(net, SGD, addresses, name=f"w{rank}", workers=size, local=server, bucket_bytes=1 << 18) as worker:
        train(worker, rank, 4)
        loads = worker.plan.server_bytes()
    dist.barrier()
    server.close()
    return [parameter.detach() for parameter in net.parameters()], loads


def test_localps_keeps_a_shard_on_every_rank(workers):
    reference = averaged(3, 4, lambda net: torch.optim.SGD(net.parameters(), 0.1))
    for parameters, loads in workers.run(3, shards_on_every_rank):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(parameters, reference, strict=True))
        assert max(loads) < 1.2 * min(loads)


def data_parallel_by_parameter_server(rank, size):
    results = []
    for algorithm in ("parameter-server", f"parameter-server({size})", "ring"):
        net = weft.torch.DataParallel(model(), algorithm=algorithm, fusion="none")
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(3):
            inputs, labels = batch(rank, step)
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
        results.append([parameter.detach().clone() for parameter in net.module.parameters()])
        assert all(bucket.algorithm == algorithm for bucket in net.plan.buckets)
    return results


def test_synchronous_servers_are_a_data_parallel_algorithm(workers):
    ranks = workers.run(3, data_parallel_by_parameter_server)
    for one, all_shards, ring in ranks:
        for mine, theirs, rings, first in zip(one, all_shards, ring, ranks[0][0], strict=True):
            assert torch.equal(mine, first), "the same bits on all ranks"
            torch.testing.assert_close(theirs, mine)
            torch.testing.assert_close(rings, mine)
