/* Two threads, one per core: staged all-reduce and all-to-all without weft.
   ./a.out SIZES CASE... : sizes of the message in KiB with commas; a case is VARIANT:TILE_KIB:TILES_IN_FLIGHT:COPY_IN:COPY_OUT:PREFETCH,
   with the variants of `names`, the copies of `cps`, and PREFETCH 0, or 1 + 2 k for prefetchw 256 << k bytes ahead.
   Prints medians in microseconds. Memory is rewritten before every call. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <stdatomic.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <sys/mman.h>
#include <immintrin.h>
typedef unsigned char u8;
#define MINX(a,b)((a)<(b)?(a):(b))
static double now(){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e6+t.tv_nsec*1e-3;}
static struct {_Alignas(128) atomic_ulong v;} flag[2][16], bar[2];
static u8 *scr[2], *usr[2], *out[2];
static void *big(size_t n,int kind){u8*p=mmap(0,n,PROT_READ|PROT_WRITE,(kind?MAP_PRIVATE:MAP_SHARED)|MAP_ANONYMOUS,-1,0);if(getenv("THP"))madvise(p,n,14);memset(p,1,n);return p;}
static int PR,PD=1024;
static inline void pw(const void*p){asm volatile("prefetchw %0"::"m"(*(const char*)p));}
static void sum(float*d0,float*d1,const float*a,const float*b,size_t n){
  for(size_t i=0;i<n;i+=64){
    if(PR&1){const char*q=(const char*)(b+i)+PD;pw(q);pw(q+64);pw(q+128);pw(q+192);}
    __m512 x0=_mm512_add_ps(_mm512_loadu_ps(a+i),_mm512_loadu_ps(b+i));
    __m512 x1=_mm512_add_ps(_mm512_loadu_ps(a+i+16),_mm512_loadu_ps(b+i+16));
    __m512 x2=_mm512_add_ps(_mm512_loadu_ps(a+i+32),_mm512_loadu_ps(b+i+32));
    __m512 x3=_mm512_add_ps(_mm512_loadu_ps(a+i+48),_mm512_loadu_ps(b+i+48));
    _mm512_storeu_ps(d0+i,x0);_mm512_storeu_ps(d0+i+16,x1);_mm512_storeu_ps(d0+i+32,x2);_mm512_storeu_ps(d0+i+48,x3);
    if(d1){_mm512_storeu_ps(d1+i,x0);_mm512_storeu_ps(d1+i+16,x1);_mm512_storeu_ps(d1+i+32,x2);_mm512_storeu_ps(d1+i+48,x3);}
  }}
static void cp_avx(u8*d,const u8*s,size_t n){for(size_t i=0;i<n;i+=256){
  __m512i a=_mm512_loadu_si512(s+i),b=_mm512_loadu_si512(s+i+64),c=_mm512_loadu_si512(s+i+128),e=_mm512_loadu_si512(s+i+192);
  _mm512_storeu_si512(d+i,a);_mm512_storeu_si512(d+i+64,b);_mm512_storeu_si512(d+i+128,c);_mm512_storeu_si512(d+i+192,e);}}
static void cp_nt(u8*d,const u8*s,size_t n){for(size_t i=0;i<n;i+=256){
  __m512i a=_mm512_loadu_si512(s+i),b=_mm512_loadu_si512(s+i+64),c=_mm512_loadu_si512(s+i+128),e=_mm512_loadu_si512(s+i+192);
  _mm512_stream_si512((void*)(d+i),a);_mm512_stream_si512((void*)(d+i+64),b);_mm512_stream_si512((void*)(d+i+128),c);_mm512_stream_si512((void*)(d+i+192),e);}_mm_sfence();}
static void cp_rep(u8*d,const u8*s,size_t n){asm volatile("rep movsb":"+D"(d),"+S"(s),"+c"(n)::"memory");}
static void cp_mem(u8*d,const u8*s,size_t n){memcpy(d,s,n);}

static void cp_pw(u8*d,const u8*s,size_t n){for(size_t i=0;i<n;i+=256){
  pw(s+i+PD);pw(s+i+PD+64);pw(s+i+PD+128);pw(s+i+PD+192);
  __m512i a=_mm512_loadu_si512(s+i),b=_mm512_loadu_si512(s+i+64),c=_mm512_loadu_si512(s+i+128),e=_mm512_loadu_si512(s+i+192);
  _mm512_storeu_si512(d+i,a);_mm512_storeu_si512(d+i+64,b);_mm512_storeu_si512(d+i+128,c);_mm512_storeu_si512(d+i+192,e);}}
static void cp_pwb(u8*d,const u8*s,size_t n){ /* block prefetchw then memcpy */
  const size_t B=4096; for(size_t j=0;j<MINX(B,n);j+=64)pw(s+j);
  for(size_t i=0;i<n;i+=B){size_t l=MINX(B,n-i); if(i+B<n){size_t m=MINX(B,n-i-B);for(size_t j=0;j<m;j+=64)pw(s+i+B+j);} memcpy(d+i,s+i,l);} }
typedef void(*cpf)(u8*,const u8*,size_t);
static cpf cps[]={cp_mem,cp_avx,cp_nt,cp_rep,cp_pw,cp_pwb};
static inline void sig(int me,int k,uint64_t v){atomic_store_explicit(&flag[me][k].v,v,memory_order_release);}
static inline void wt(int o,int k,uint64_t v){while(atomic_load_explicit(&flag[o][k].v,memory_order_acquire)<v)_mm_pause();}
/* config */
static int variant,cin,cout_; static size_t N,T; static int D; /* T: tile of a slice in bytes, D tiles in flight, */
static uint64_t base[2];
#define MIN(a,b)((a)<(b)?(a):(b))
static void through(int me,u8*put,u8*take){ /* slice reduce: contributions in `put`, the peer's in `take`, results where they lay; D in flight */
  int o=1-me; size_t half=N/2; size_t nt=(half+T-1)/T; uint64_t b=base[me];
  u8*mine=usr[me]+me*half,*oth=usr[me]+o*half;
  for(size_t i=0;i<nt+D;i++){
    if(i<nt){size_t l=MIN(T,half-i*T);cps[cin](put+(i%D)*T,oth+i*T,l);sig(me,0,b+i+1);}
    size_t r=i; if(D>1){ if(i==0) continue; r=i-1; }
    if(r<nt){
      size_t l=MIN(T,half-r*T);
      wt(o,0,b+r+1);
      u8*p=take+(r%D)*T;
      sum((float*)(mine+r*T),(float*)p,(float*)(mine+r*T),(float*)p,l/4);
      sig(me,1,b+r+1);
    }
    size_t c; if(D>1){ if(i+1<(size_t)D) continue; c=i+1-D; } else c=i;
    if(c<nt){ size_t l=MIN(T,half-c*T);
      wt(o,1,b+c+1);
      cps[cout_](oth+c*T,put+(c%D)*T,l);
    }
  }
  base[me]+=nt;
}
static void staged(int me){through(me,scr[me],scr[1-me]);} /* the peer fetches */
static void push(int me){through(me,scr[1-me],scr[me]);} /* pushed to the peer's landing, and back */
static void xch(u8*d,u8*sc,const u8*s,size_t n){ for(size_t i=0;i<n;i+=256){
  __m512i a=_mm512_loadu_si512(sc+i),b=_mm512_loadu_si512(sc+i+64),c=_mm512_loadu_si512(sc+i+128),e=_mm512_loadu_si512(sc+i+192);
  __m512i p=_mm512_loadu_si512(s+i),q=_mm512_loadu_si512(s+i+64),r=_mm512_loadu_si512(s+i+128),t=_mm512_loadu_si512(s+i+192);
  _mm512_storeu_si512(d+i,a);_mm512_storeu_si512(d+i+64,b);_mm512_storeu_si512(d+i+128,c);_mm512_storeu_si512(d+i+192,e);
  _mm512_storeu_si512(sc+i,p);_mm512_storeu_si512(sc+i+64,q);_mm512_storeu_si512(sc+i+128,r);_mm512_storeu_si512(sc+i+192,t);}}
static void xch2(u8*d,u8*sc,const u8*s,size_t n){ size_t B=PD; for(size_t i=0;i<n;i+=B){ size_t l=MINX(B,n-i); memcpy(d+i,sc+i,l); memcpy(sc+i,s+i,l);} }
static void fused(int me){ int o=1-me; size_t half=N/2; size_t nt=(half+T-1)/T; uint64_t b=base[me];
  u8*mine=usr[me]+me*half,*oth=usr[me]+o*half;
  for(size_t i=0;i<(size_t)D&&i<nt;i++){size_t l=MINX(T,half-i*T);cps[cin](scr[me]+(i%D)*T,oth+i*T,l);sig(me,0,b+i+1);}
  for(size_t r=0;r<nt+1;r++){
    if(r<nt){ size_t l=MINX(T,half-r*T); wt(o,0,b+r+1); u8*p=scr[o]+(r%D)*T;
      sum((float*)(mine+r*T),(float*)p,(float*)(mine+r*T),(float*)p,l/4); sig(me,1,b+r+1);}
    if(r>=1){ size_t c=r-1,l=MINX(T,half-c*T); wt(o,1,b+c+1);
      if(c+D<nt){ size_t l2=MINX(T,half-(c+D)*T); if(cout_==1)xch(oth+c*T,scr[me]+(c%D)*T,oth+(c+D)*T,l2);else if(cout_==2)xch2(oth+c*T,scr[me]+(c%D)*T,oth+(c+D)*T,l2);
         else {memcpy(oth+c*T,scr[me]+(c%D)*T,l);memcpy(scr[me]+(c%D)*T,oth+(c+D)*T,l2);} sig(me,0,b+c+D+1);}
      else cps[0](oth+c*T,scr[me]+(c%D)*T,l);
    } }
  base[me]+=nt; }
static double ph[2][8];
static void phases(int me){ int o=1-me; size_t half=N/2; uint64_t b=base[me];
  u8*mine=usr[me]+me*half,*oth=usr[me]+o*half; double t0=now();
  for(size_t i=0;i<half;i+=T) cps[cin](scr[me]+i,oth+i,T); double t1=now(); sig(me,0,b+1); wt(o,0,b+1); double t2=now();
  for(size_t i=0;i<half;i+=T) sum((float*)(mine+i),(float*)(scr[o]+i),(float*)(mine+i),(float*)(scr[o]+i),T/4); double t3=now(); sig(me,1,b+1);wt(o,1,b+1); double t4=now();
  for(size_t i=0;i<half;i+=T) cps[cout_](oth+i,scr[me]+i,T); double t5=now();
  ph[me][0]+=t1-t0;ph[me][1]+=t2-t1;ph[me][2]+=t3-t2;ph[me][3]+=t4-t3;ph[me][4]+=t5-t4;ph[me][5]+=1; base[me]+=1;}
static void sep(int me){ /* results in separate scratch area of the reducer */
  int o=1-me; size_t half=N/2; size_t nt=(half+T-1)/T; uint64_t b=base[me];
  u8*mine=usr[me]+me*half,*oth=usr[me]+o*half;
  for(size_t i=0;i<nt+D;i++){
    if(i<nt){size_t l=MIN(T,half-i*T);
      cps[cin](scr[me]+(i%D)*T,oth+i*T,l);sig(me,0,b+i+1);}
    size_t r=i; if(D>1){ if(i==0) continue; r=i-1; }
    if(r<nt){
      size_t l=MIN(T,half-r*T);
      if(r>=(size_t)D) wt(o,2,b+r-D+1);
      wt(o,0,b+r+1);
      u8*p=scr[o]+(r%D)*T;
      sum((float*)(mine+r*T),(float*)(scr[me]+(D+r%D)*T),(float*)(mine+r*T),(float*)p,l/4);
      sig(me,1,b+r+1);
    }
    size_t c; if(D>1){ if(i+1<(size_t)D) continue; c=i+1-D; } else c=i;
    if(c<nt){ size_t l=MIN(T,half-c*T);
      wt(o,1,b+c+1);
      cps[cout_](oth+c*T,scr[o]+(D+c%D)*T,l);
      sig(me,2,b+c+1);
    }
  }
  wt(o,2,b+nt);
  base[me]+=nt;
}
static void direct(int me){ /* all of it shown to the peer, both add */
  int o=1-me; size_t nt=(N+T-1)/T; uint64_t b=base[me];
  for(size_t i=0;i<nt+D-1;i++){
    if(i<nt){size_t l=MIN(T,N-i*T);
      if(i>=(size_t)D) wt(o,1,b+i-D+1);
      cps[cin](scr[me]+(i%D)*T,usr[me]+i*T,l);sig(me,0,b+i+1);}
    if(i+1<(size_t)D) continue;
    size_t r=i+1-D; if(r<nt){ size_t l=MIN(T,N-r*T);
      wt(o,0,b+r+1);
      sum((float*)(usr[me]+r*T),0,(float*)(usr[me]+r*T),(float*)(scr[o]+(r%D)*T),l/4);
      sig(me,1,b+r+1);
    }
  }
  wt(o,1,b+nt);
  base[me]+=nt;
}
static void sym(int me){int o=1-me;size_t half=N/2;uint64_t b=base[me];sig(me,0,b+1);wt(o,0,b+1);
  sum((float*)(usr[0]+me*half),(float*)(usr[1]+me*half),(float*)(usr[0]+me*half),(float*)(usr[1]+me*half),half/4);
  sig(me,1,b+1);wt(o,1,b+1);base[me]+=1;}
static void a2a_land(int me){ /* out of place all-to-all: own copy + exchange through scratch */
  int o=1-me; size_t half=N/2; size_t nt=(half+T-1)/T; uint64_t b=base[me];
  for(size_t i=0;i<nt+D;i++){
    if(i<nt){size_t l=MIN(T,half-i*T);
      if(i>=(size_t)D) wt(o,1,b+i-D+1);
      u8*s=variant==6?scr[o]:scr[me];
      cps[cin](s+(i%D)*T,usr[me]+o*half+i*T,l);sig(me,0,b+i+1);
      cps[cout_](out[me]+me*half+i*T,usr[me]+me*half+i*T,l);}
    size_t c; if(D>1){ if(i==0) continue; c=i-1; } else c=i;
    if(c<nt){ size_t l=MIN(T,half-c*T);
      wt(o,0,b+c+1);
      u8*s=variant==6?scr[me]:scr[o];
      cps[cout_](out[me]+o*half+c*T,s+(c%D)*T,l);
      sig(me,1,b+c+1);
    }
  }
  wt(o,1,b+nt);
  base[me]+=nt;
}
static void a2a_sym(int me){int o=1-me;size_t half=N/2;uint64_t b=base[me];sig(me,0,b+1);wt(o,0,b+1);
  cps[cout_](out[me]+o*half,usr[o]+me*half,half);cps[cout_](out[me]+me*half,usr[me]+me*half,half);
  sig(me,1,b+1);wt(o,1,b+1);base[me]+=1;}
static void (*fns[])(int)={staged,sep,direct,push,sym,a2a_land,a2a_land,a2a_sym,phases,fused};
static const char*names[]={"staged","sep","direct","push","sym","a2a-pull","a2a-push","a2a-sym","phases","fused"};
static void barrier(int me){static __thread uint64_t n; n++; atomic_store(&bar[me].v,n); while(atomic_load(&bar[1-me].v)<n)_mm_pause();}
static int cases[256][8],nc; static size_t sizes[32]; static int ns; static int rounds=1; static double secs=0.02;
static double res[256][32][16];
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
static atomic_int iters;
static void*run(void*p){int me=(int)(intptr_t)p;cpu_set_t s;CPU_ZERO(&s);CPU_SET(me,&s);sched_setaffinity(0,sizeof s,&s);
  for(int r=0;r<rounds;r++)for(int z=0;z<ns;z++)for(int c=0;c<nc;c++){
    barrier(me);
    if(me==0){variant=cases[c][0];T=(size_t)cases[c][1]<<10;D=cases[c][2];cin=cases[c][3];cout_=cases[c][4];N=sizes[z];PR=cases[c][5]&1;PD=256<<(cases[c][5]>>1);atomic_store(&iters,N>(8<<20)?15:N>(1<<20)?40:150);
      for(int k=0;k<16;k++){atomic_store(&flag[0][k].v,0);atomic_store(&flag[1][k].v,0);} base[0]=base[1]=0;}
    barrier(me);
    int n=atomic_load(&iters); double v[256];
    for(int i=0;i<n;i++){ for(size_t j=0;j<N/4;j++)((volatile float*)usr[me])[j]=i; barrier(me); double t=now(); fns[variant](me); v[i]=now()-t; barrier(me);}
    if(me==0&&variant==8){printf("N %zuK T %zuK: in %.1f w %.1f red %.1f w %.1f out %.1f\n",N>>10,T>>10,ph[0][0]/ph[0][5],ph[0][1]/ph[0][5],ph[0][2]/ph[0][5],ph[0][3]/ph[0][5],ph[0][4]/ph[0][5]);memset(ph,0,sizeof ph);}
    if(me==0){qsort(v,n,sizeof(double),cmp);res[c][z][r]=v[n/2];}
  }return 0;}
int main(int ac,char**av){ /* args: sizes(K,comma) cases v:T:D:cin:cout ... */
  char*q=strtok(av[1],",");while(q){sizes[ns++]=(size_t)atol(q)<<10;q=strtok(0,",");}
  for(int i=2;i<ac;i++){int*c=cases[nc++];sscanf(av[i],"%d:%d:%d:%d:%d:%d",c,c+1,c+2,c+3,c+4,c+5);}
  for(int i=0;i<2;i++){scr[i]=big(64<<20,0);usr[i]=big(72<<20,1);out[i]=big(72<<20,1);}
  pthread_t t;pthread_create(&t,0,run,(void*)1);run(0);pthread_join(t,0);
  printf("%-28s","");for(int z=0;z<ns;z++)printf("%9zuK",sizes[z]>>10);puts("");
  for(int c=0;c<nc;c++){char b[64];int*k=cases[c];snprintf(b,64,"%s T%dK D%d i%d o%d p%d d%d",names[k[0]],k[1],k[2],k[3],k[4],k[5]&1,256<<(k[5]>>1));printf("%-40s",b);
    for(int z=0;z<ns;z++){qsort(res[c][z],rounds,sizeof(double),cmp);printf(" %9.1f",res[c][z][rounds/2]);}puts("");}
}
