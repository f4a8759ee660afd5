#!/usr/bin/env bash
# A command in a virtual machine with two RDMA devices (Soft-RoCE, the kernel's rdma_rxe), for hosts
# that have none:   tests/rdma/vm.sh COMMAND [ARGUMENT ...]
#
# The command runs as root in the current directory, which it sees read-write; the rest of the
# host's files it sees through a throw-away overlay. Its output is printed, its status returned. The
# guest runs Debian's kernel under QEMU's software emulation, so it needs no /dev/kvm: it boots in
# 15 s, and what needs the processor is several times slower in it than outside.
#
#   rxe0  10.9.0.1      rxe1  10.9.1.1      each reaches itself
#
# VM_TIMEOUT: seconds until the guest is given up (900). VM_MEMORY: its memory in MiB (4096).
# VM_NODES: 2 gives each of its two processors a NUMA node, with half of the memory (1).
# It needs `make system-packages FOR=rdma`. The kernel is Debian's, and is kept in build/rdma-vm.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,15p' "$0" >&2; exit 2; }

script=$(realpath "$0")
work=$PWD
cache=$work/build/rdma-vm
memory=${VM_MEMORY:-4096} limit=${VM_TIMEOUT:-900}
modules="crc32_generic virtio_pci 9pnet_virtio 9p overlay veth ib_uverbs rdma_ucm rdma_rxe"
export PATH=$PATH:/usr/sbin:/sbin

# The kernel, and what it starts: a busybox that loads the modules and mounts the host's files.
make_kernel() {
  [ "$cache/initrd" -nt "$script" ] && return
  local parts package version
  mkdir -p "$cache"
  parts=$(mktemp -d)
  package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
  [ -n "$package" ] || { apt-get update -qq; package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}'); }
  (cd "$parts" && apt-get download -qq -o APT::Sandbox::User=root "$package" && dpkg -x ./*.deb kernel)
  version=$(ls "$parts/kernel/lib/modules")
  depmod -b "$parts/kernel" "$version"
  mkdir -p "$parts"/root/{bin,dev,proc,sys,modules,lower,upper,root}
  cp "$(command -v busybox)" "$parts/root/bin/busybox"
  for module in $modules; do
    modprobe -d "$parts/kernel" -S "$version" --show-depends "$module"
  done | awk '/^insmod/ && !seen[$2]++ {print $2}' | while read -r file; do
    cp "$file" "$parts/root/modules/"
    basename "$file" >>"$parts/root/modules/order"
  done
  cat >"$parts/root/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
while read module; do $b insmod /modules/$module || echo "vm: $module does not load"; done </modules/order
options=trans=virtio,version=9p2000.L,msize=524288
$b mount -t 9p -o ro,$options,cache=loose host /lower
$b mount -t tmpfs -o size=80% tmpfs /upper; $b mkdir -p /upper/files /upper/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
$b mount -t proc proc /root/proc; $b mount -t sysfs sys /root/sys; $b mount -t devtmpfs dev /root/dev
$b mkdir -p /root/dev/shm /root/dev/pts
$b mount -t tmpfs tmpfs /root/dev/shm; $b mount -t tmpfs tmpfs /root/run
$b mount -t 9p -o $options job /root/mnt
exec $b switch_root /root /bin/bash /mnt/guest.sh
INIT
  chmod +x "$parts/root/init"
  cp "$parts"/kernel/boot/vmlinuz-* "$cache/vmlinuz"
  (cd "$parts/root" && find . | cpio --quiet -o -H newc | gzip -1) >"$cache/initrd.part"
  mv "$cache/initrd.part" "$cache/initrd"
  rm -rf "$parts"
}

"$(dirname "$script")/../../tools/make/system_packages.sh" --check rdma
make_kernel

job=$(mktemp -d)
tailer=
trap '[ -z "$tailer" ] || kill "$tailer"; rm -rf "$job"' EXIT
printf '%q ' "$@" >"$job/command"
cat >"$job/guest.sh" <<GUEST
export PATH=$(printf %q "$PATH") HOME=$(printf %q "$HOME") TERM=dumb
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose work $(printf %q "$work")
ulimit -l unlimited
echo rdma-vm >/proc/sys/kernel/hostname
ip link set lo up
ip link add v0 type veth peer name v1
ip address add 10.9.0.1/24 dev v0; ip address add 10.9.1.1/24 dev v1
ip link set v0 mtu 9000 up; ip link set v1 mtu 9000 up
rdma link add rxe0 type rxe netdev v0; rdma link add rxe1 type rxe netdev v1
cd $(printf %q "$work")
bash -c "\$(cat /mnt/command)" </dev/null >/mnt/output 2>&1; echo \$? >/mnt/status
sync; echo o >/proc/sysrq-trigger; sleep 30
GUEST
: >"$job/output"
tail -f "$job/output" & tailer=$!
share=security_model=none,multidevs=remap
# The emulation carries out "rep movsb" byte by byte, and multiplies without carry bit by bit: a
# processor without the former, and a kernel without crc32_pclmul, copy and check sums faster. With
# the time-stamp counter, reading the clock is not a system call.
processor=max,-erms,-fsrm,-la57
clock="tsc=reliable clocksource=tsc"
nodes=()
if [ "${VM_NODES:-1}" = 2 ]; then
  for node in 0 1; do
    nodes+=(-object "memory-backend-ram,id=memory$node,size=$((memory / 2))M")
    nodes+=(-numa "node,nodeid=$node,cpus=$node,memdev=memory$node")
  done
fi
timeout --foreground "$limit" qemu-system-x86_64 -accel tcg,thread=multi \
  -cpu "$processor" -smp 2 -m "$memory" "${nodes[@]}" \
  -kernel "$cache/vmlinuz" -initrd "$cache/initrd" -no-reboot \
  -append "console=ttyS0 quiet panic=-1 mitigations=off $clock rcupdate.rcu_expedited=1" -display none -serial "file:$job/console" \
  -virtfs local,path=/,mount_tag=host,readonly=on,$share \
  -virtfs local,path="$job",mount_tag=job,$share \
  -virtfs local,path="$work",mount_tag=work,$share || true
sleep 0.3
kill "$tailer"
wait "$tailer" 2>/dev/null || true
tailer=
[ -s "$job/status" ] && exit "$(cat "$job/status")"
echo "vm: the guest has ended without a result (after ${limit} s at most); its console:" >&2
tail -20 "$job/console" >&2
exit 125
