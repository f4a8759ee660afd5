import os, socket, time
total=int(float(os.environ.get("MB","256"))*1e6)
if os.environ["RANK"]=="0":
    s=socket.create_server(("",5000)); c,_=s.accept()
    buf=bytearray(1<<20); got=0; b=None; marks=[]
    while True:
        n=c.recv_into(buf)
        if b is None: b=time.monotonic()
        if n==0: break
        got+=n; marks.append((time.monotonic(),got))
    e=time.monotonic()
    half=[m for m in marks if m[1]>=got/2][0]
    print("Gbit/s whole %.3f second half %.3f"%(got*8/(e-b)/1e9, (got-half[1])*8/(e-half[0])/1e9))
else:
    t0=time.monotonic()
    while True:
        try: c=socket.create_connection(("host0",5000)); break
        except OSError as e:
            if time.monotonic()-t0>5: raise
    m=memoryview(bytes(1<<20)); left=total
    while left>0: left-=c.send(m[:min(left,1<<20)])
    c.close()
