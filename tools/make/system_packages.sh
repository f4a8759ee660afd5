#!/usr/bin/env bash
# Installs the system's packages that tests and tools need (Debian's names, as root), and says which:
#   tools/make/system_packages.sh [PURPOSE ...]            installs missing ones (default: tests)
#   tools/make/system_packages.sh --check PURPOSE ...      fails if something is missing, and names it
set -euo pipefail

# Purpose, package, and the evidence of its installation: a command, a file, or a library.
table="
tests iproute2 ip
tests libseccomp2 lib:libseccomp.so.2
tests openssl openssl
launchers iproute2 ip
launchers munge munged
launchers openssh-client ssh
launchers openssh-server sshd
launchers slurm-client srun
launchers slurmctld slurmctld
launchers slurmd slurmd
launchers util-linux unshare
wheels debootstrap debootstrap
wheels patchelf patchelf
wheels qemu-user qemu-aarch64
aarch64 gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
aarch64 libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdlib.h
aarch64 qemu-user qemu-aarch64
site chromium chromium
rdma busybox-static busybox
rdma cpio cpio
rdma ibverbs-providers /etc/libibverbs.d
rdma ibverbs-utils ibv_devinfo
rdma iproute2 rdma
rdma kmod depmod
rdma qemu-system-x86 qemu-system-x86_64
rdma rdma-core rdma-ndd
"
export PATH=$PATH:/usr/sbin:/sbin

is_installed() {
  case $1 in
    lib:*) ldconfig -p | grep -q "${1#lib:}" ;;
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

check=
[ "${1:-}" != --check ] || { check=yes; shift; }
[ $# -gt 0 ] || set -- tests
packages=() missing=()
for purpose in "$@"; do
  grep -q "^$purpose " <<<"$table" || { echo "no purpose $purpose: $(awk 'NF {print $1}' <<<"$table" | sort -u | xargs)" >&2; exit 2; }
  while read -r _ package sign; do
    packages+=("$package")
    is_installed "$sign" || missing+=("$package")
  done < <(grep "^$purpose " <<<"$table")
done
if [ -n "$check" ]; then
  [ ${#missing[@]} -eq 0 ] && exit
  echo "missing system packages: ${missing[*]} (make system-packages FOR=\"$*\")" >&2
  exit 1
fi
echo "system packages for $*: ${packages[*]}"
[ ${#missing[@]} -gt 0 ] || { echo "all are installed"; exit; }
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "install as root, by this system's package manager: ${missing[*]}" >&2
  exit 1
fi
echo "installs ${missing[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
