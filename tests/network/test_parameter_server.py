"""Tests of parameter servers between emulated hosts, in both layouts, started by both launchers."""

import sys

import pytest
from drawn import drawn
from emulated_hosts import printed, python, run_hosts

# Every rank trains with a server on every rank, then all but the last with its server alone; then
# the first trains by the average gradient without any. Each prints what its parameters are then.
TRAIN = """
import hashlib
import sys
import torch
import torch.distributed as dist
from weft.torch.parameter_server import ServerOptimizer, Worker, local_server

STEPS, RATE = 3, 0.1

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(600, 700), torch.nn.Linear(700, 3))

def loss(net, rank, step):
    inputs = torch.randn(8, 600, generator=torch.Generator().manual_seed(10 * step + rank))
    return net(inputs).square().mean()

def report(layout, net):
    values = b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())
    # One write: torchrun's ranks are unbuffered, and print would write word by word.
    sys.stdout.write(f"{layout} {hashlib.sha256(values).hexdigest()}\\n")
    sys.stdout.flush()

def serve(layout, workers, chosen):
    server, addresses = local_server()
    net = network()
    if dist.get_rank() < workers:
        own = server if addresses[dist.get_rank()] in addresses[chosen] else None
        options = {"name": f"w{dist.get_rank()}", "workers": workers, "local": own}
        with Worker(net, ServerOptimizer("sgd", lr=RATE), addresses[chosen], **options) as worker:
            for step in range(STEPS):
                loss(worker, dist.get_rank(), step).backward()
                worker.step()
        report(layout, net)
    dist.barrier()
    server.close()

def train_alone(layout, workers):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    for step in range(STEPS):
        gradients = []
        for rank in range(workers):
            net.zero_grad()
            loss(net, rank, step).backward()
            gradients.append([parameter.grad.clone() for parameter in net.parameters()])
        for parameter, *parts in zip(net.parameters(), *gradients):
            parameter.grad = sum(parts[1:], parts[0]) / workers
        optimizer.step()
    report(layout, net)

torch.set_num_threads(1)
dist.init_process_group("weft")
size = dist.get_world_size()
serve("localps", size, slice(None))
serve("default", size - 1, slice(size - 1, size))
if dist.get_rank() == 0:
    train_alone("localps", size)
    train_alone("default", size - 1)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("launcher", drawn(["weft hosts", "torchrun"], 1))
def test_servers_on_hosts_train_like_one_process(launcher: str) -> None:
    if launcher == "torchrun":
        # One agent a host; `weft hosts` has set its rank and where they meet.
        agent = f"""exec {sys.executable} -m torch.distributed.run --nnodes 2 --node-rank $RANK --nproc-per-node 2 \\
            --master-addr $MASTER_ADDR --master-port $MASTER_PORT --no-python {sys.executable} -c "$0" """
        done = run_hosts("--hosts", "2", command=["bash", "-c", agent, TRAIN])
    else:
        options = ["--hosts", "2", "--ranks-per-host", "2", "--gbps", "1"]
        done = run_hosts(*options, command=python(TRAIN))
    assert done.returncode == 0, done.stderr
    lines = [line for own in printed(done).values() for line in own]
    for layout, count in (("localps", 4), ("default", 3)):
        digests = [line.split()[1] for line in lines if line.startswith(layout)]
        assert len(digests) == count + 1  # and rank 0's without servers
        assert len(set(digests)) == 1
