import sys, time, statistics, torch, torch.distributed as dist, weft.torch, contextlib
from torch import nn
"""torchrun --standalone --nproc-per-node P cost.py V wide|deep"""
V, name = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("weft")
rank, P = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
k = V // P
def net():
    torch.manual_seed(0)
    if name == "wide":
        return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)), 1024, 64
    return nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))]), 512, 256
(a, w, b), (c, _, _) = net(), net()
plain, virtual = weft.torch.DataParallel(a), weft.torch.DataParallel(c, virtual_ranks=V)
opts = [weft.torch.Overlapped(torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9), x) for m, x in ((a, plain), (c, virtual))]
x = [torch.randn(b, w) for _ in range(k)]
def step_plain():
    opts[0].zero_grad()
    for i, part in enumerate(x):
        with plain.no_sync() if i < k - 1 else contextlib.nullcontext():
            (plain(part).square().mean() / k).backward()
    opts[0].step()
def step_virtual():
    for part in virtual.parts(x): virtual(part).square().mean().backward()
    opts[1].step()
times = {0: [], 1: []}
for block in range(10):
    for i, f in enumerate((step_plain, step_virtual)):
        f(); plain.flush(); virtual.flush(); dist.barrier(); t = time.perf_counter()
        for _ in range(5): f()
        plain.flush(); virtual.flush(); dist.barrier()
        if block > 3: times[i].append((time.perf_counter() - t) / 5)
if rank == 0:
    m = [statistics.median(times[i]) * 1e3 for i in (0, 1)]
    print(name, "P", P, "V", V, "plain %.1f ms virtual %.1f ms ratio %.3f" % (*m, m[1] / m[0]), "params", sum(p.numel() for p in a.parameters()))
dist.destroy_process_group()
