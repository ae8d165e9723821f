#!/usr/bin/env bash
# Runs commands on a bare machine: Debian's base with make, a Go installation, and this commit, nothing else. In CI, as root:
#
#   scripts/bare.sh                                   # make run, then make test
#   scripts/bare.sh 'make run' './scripts/check.sh'   # these
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
  echo "bare.sh: run it as root, with debootstrap installed: apt-get install debootstrap" >&2
  exit 2
fi
# Mounts are of this process alone and go with it, however it ends: what is left of the folder can be removed without reaching the
# machine's /dev.
if [ "${1:-}" != --own-mounts ]; then exec unshare --mount "$BASH" "$0" --own-mounts "$@"; fi
shift
[ $# -gt 0 ] || set -- 'make run' 'make test'

root=$(mktemp -d)
chmod 755 "$root" # apt downloads as a user of its own
finish() {
  status=$?
  for folder in proc dev/pts dev usr/local/go; do
    # What an interrupted command has left running keeps them busy.
    if mountpoint -q "$root/$folder"; then umount --lazy "$root/$folder"; fi
  done
  rm -rf --one-file-system "$root"
  exit "$status"
}
trap finish EXIT

debootstrap --variant=minbase --include=make,ca-certificates stable "$root" >&2
# How this machine reaches others, and whom it trusts, is of the network, not of the machine.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir -p "$root/usr/local/go" "$root/agentd"
git -C "$source" archive HEAD | tar -x -C "$root/agentd"
mount --bind -o ro "$(go env GOROOT)" "$root/usr/local/go"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind /dev/pts "$root/dev/pts"

for command; do
  echo "== $command"
  began=$SECONDS
  env -i HOME=/root PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    GOPROXY="$(go env GOPROXY)" GOFLAGS=-buildvcs=false \
    chroot "$root" /bin/bash -c "cd /agentd && $command"
  echo "== $command: $((SECONDS - began)) s"
done
