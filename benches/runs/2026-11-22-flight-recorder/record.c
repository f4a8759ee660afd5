#include <stdio.h>
#include <stdint.h>
#include <stdatomic.h>
#include <x86intrin.h>
#include <time.h>
struct slot { _Atomic uint64_t w[8]; } __attribute__((aligned(64)));
static struct slot ring[1024]; static _Atomic uint64_t next;
static double now(){struct timespec t; clock_gettime(CLOCK_MONOTONIC,&t); return t.tv_sec*1e9+t.tv_nsec;}
#define ST(i,v) atomic_store_explicit(&s->w[i],v,memory_order_relaxed)
__attribute__((noinline)) uint64_t issue(uint64_t a,uint64_t b,uint64_t c){
 uint64_t n=atomic_fetch_add_explicit(&next,1,memory_order_relaxed); struct slot*s=&ring[n%1024]; uint64_t t=__rdtsc();
 ST(0,0); atomic_thread_fence(memory_order_release); ST(1,a);ST(2,b);ST(3,c);ST(4,a);ST(5,t);ST(6,t);ST(7,0); atomic_store_explicit(&s->w[0],n+1,memory_order_release); return n;}
__attribute__((noinline)) void end(uint64_t n){struct slot*s=&ring[n%1024]; if(atomic_load_explicit(&s->w[0],memory_order_relaxed)==n+1) ST(7,__rdtsc());}
int main(){ double best=1e9,b2=1e9,b3=1e9; for(int r=0;r<3000;r++){ double t=now(); for(int i=0;i<1000;i++) end(issue(i,r,3)); double d=(now()-t)/1000; if(d<best)best=d;
 t=now(); uint64_t x=0; for(int i=0;i<1000;i++) x+=__rdtsc(); d=(now()-t)/1000; if(d<b2)b2=d; if(x==1)puts("");
 struct timespec q; t=now(); for(int i=0;i<1000;i++) clock_gettime(CLOCK_MONOTONIC,&q); d=(now()-t)/1000; if(d<b3)b3=d;}
 printf("record %.1f ns, rdtsc %.1f ns, clock_gettime %.1f ns\n",best,b2,b3);}
