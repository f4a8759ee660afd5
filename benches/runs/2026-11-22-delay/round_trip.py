import os, socket, time, statistics
n=int(os.environ.get("N","100"))
if os.environ["RANK"]=="0":
    s=socket.create_server(("",5000)); c,_=s.accept(); c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY,1)
    for _ in range(n+5): c.sendall(c.recv(1))
    time.sleep(0.2)
else:
    t0=time.monotonic()
    while True:
        try: c=socket.create_connection(("host0",5000)); break
        except OSError as e:
            if time.monotonic()-t0>5: raise
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY,1)
    ts=[]
    for _ in range(n+5):
        b=time.perf_counter(); c.sendall(b"x"); c.recv(1); ts.append(time.perf_counter()-b); time.sleep(0.001)
    ts=sorted(ts[5:])
    print("rtt us min %.0f median %.0f p95 %.0f max %.0f"%tuple(1e6*x for x in (ts[0],statistics.median(ts),ts[int(.95*n)],ts[-1])))
