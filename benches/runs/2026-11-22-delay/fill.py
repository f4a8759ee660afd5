import argparse, os, socket, statistics, time
import numpy as np, weft
parser = argparse.ArgumentParser()
parser.add_argument("--mib", type=int, nargs="+", default=[64, 256])
parser.add_argument("--calls", type=int, default=5)
parser.add_argument("--idle-s", type=float, default=2.0)
parser.add_argument("--delay-ms", type=float, default=20.0, help="one way, for the bound")
parser.add_argument("--rate", type=float, default=117.5e6, help="of one stream, in bytes per second")
parser.add_argument("--congestion", help="set on every connection, where only the administrator may make it the default")
parser.add_argument("--sysctl", nargs="*", default=[], help="NAME=VALUE below net.ipv4, of the emulated host")
args = parser.parse_args()
for setting in args.sysctl:
    name, _, value = setting.partition("=")
    with open("/proc/sys/net/ipv4/" + name, "w") as file: file.write(value)
group = weft.init()
for name in os.listdir("/proc/self/fd") if args.congestion else []:
    try: connection = socket.socket(fileno=os.dup(int(name)))
    except OSError: continue
    if connection.family in (socket.AF_INET, socket.AF_INET6): connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, args.congestion.encode())
    connection.close()
def processor():
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]
def call(x):
    group.barrier()
    (total, idle), began = processor(), time.perf_counter()
    group.all_reduce(x)
    took = np.array([time.perf_counter() - began])
    after = processor()
    group.all_reduce(took, op="max")
    return 1e3 * took[0], 1 - (after[1] - idle) / max(1, after[0] - total)
for mib in args.mib:
    x = np.ones(mib << 18, np.float32)
    bound = 1e3 * 2 * (group.size - 1) / group.size * x.nbytes / args.rate + args.delay_ms
    if group.rank == 0: print(group.plan("all-reduce", x.nbytes))
    for kind, count, idle in (("first", 1, 0), ("busy", args.calls, 0), ("idle", args.calls, args.idle_s)):
        rows = []
        for _ in range(count):
            time.sleep(idle)
            rows.append(call(x))
        median = statistics.median(ms for ms, _ in rows)
        if group.rank == 0:
            print(f"{mib} MiB {kind}: median {median:.0f} ms, {median / bound:.2f} x the bound of {bound:.0f};",
                  "ms (busy share of the machine):", " ".join(f"{ms:.0f} ({share:.2f})" for ms, share in rows), flush=True)
group.barrier()
group.close()
