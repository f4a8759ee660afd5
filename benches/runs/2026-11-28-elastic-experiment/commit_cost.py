"""What a commit of weft.torch.Recovery costs, with Overlapped: steps with none, each tenth, each."""
import statistics, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
import weft.torch
ROUNDS, STEPS, BATCH = int(sys.argv[1]), 20, 64
torch.set_num_threads(1)
dist.init_process_group("weft")
rank = dist.get_rank()
def network(width):
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
def times(width, every):
    torch.manual_seed(0)
    net = network(width)
    optimizer = torch.optim.AdamW(net.parameters())
    inputs, targets = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    found = []
    def train(recovery):
        model = weft.torch.DataParallel(net)
        over = weft.torch.Overlapped(optimizer, model)
        for step in range(STEPS + 15):
            if step == 15:
                over.flush(); dist.barrier(); found.append((time.monotonic(), time.process_time()))
            over.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            over.step()
            if every: recovery.commit()
        over.flush()
        found.append((time.monotonic(), time.process_time()))
    weft.torch.Recovery(net, optimizer, every=every or 1000).run(train)
    return [1000 * (b - a) / STEPS for a, b in zip(*found)]
for width in map(int, sys.argv[2:]):
    count = sum(p.numel() for p in network(width).parameters())
    rows = {every: [] for every in (0, 10, 1)}
    for _ in range(ROUNDS):
        for every, row in rows.items(): row.append(times(width, every))
    if rank == 0:
        for every, row in rows.items():
            t=[a for a,_ in row]; c=[b for _,b in row]
            print(f"{count/1e6:.1f}M every={every}: {statistics.median(t):.1f} ms [{min(t):.1f} to {max(t):.1f}] cpu {statistics.median(c):.1f}", flush=True)
dist.destroy_process_group()
