# What a run of the tests needs beside Go, and what it says when it did not get it. Scripts source this file.
#
# A script that ends well although tests did not run that agentd needs exits with 3.

scratch=$(mktemp -d)
export AGENTD_TEST_NOT_RUN=$scratch/not_run # test/missing writes to it
trap finish EXIT

# Servers sync each write. In memory that costs a quarter of the processor time that it costs on a disk, and a killed
# process loses nothing either way. Go keeps building where it does: its binaries are large.
export GOTMPDIR=${GOTMPDIR:-${TMPDIR:-/tmp}}
if [ "$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 2000000 ] 2>/dev/null; then
  # Go repeats no test that passed and saw the same, this folder's name included: the next run has it again, unless two run at once.
  read -r checkout _ < <(pwd -P | cksum)
  TMPDIR=/dev/shm/agentd-$checkout
  mkdir "$TMPDIR" 2>/dev/null || TMPDIR=$(mktemp -d /dev/shm/agentd-XXXXXX)
  export TMPDIR
fi

# finish says last which tests did not run.
finish() {
  local status=$? list=$AGENTD_TEST_NOT_RUN
  if [ -s "$list" ]; then
    {
      echo
      echo "THESE TESTS DID NOT RUN:"
      awk -F '\t' '{ n[$0]++ } END { for (l in n) { split(l, f); printf "  %s  %s (%d): %s\n", f[1], f[2], n[l], f[3] } }' "$list" | sort -r
    } >&2
    if [ "$status" = 0 ] && grep -q '^required' "$list"; then
      echo "Install what is required and repeat." >&2
      status=3
    fi
  fi
  rm -rf "$scratch"
  case ${TMPDIR:-} in /dev/shm/agentd-*) rm -rf "$TMPDIR" ;; esac
  exit "$status"
}

# install PACKAGE...: installs Debian packages, if whoever runs this may.
install() {
  if ! [ "$(id -u)" = 0 ] || ! command -v apt-get >/dev/null; then return 1; fi
  echo "installing $*" >&2
  apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# find_redis looks for a redis-server on PATH, in Docker and at the package manager, in this order. Without any, the tests
# that need one say so.
find_redis() {
  local image=redis:8.2.3
  if command -v redis-server >/dev/null; then return; fi
  if docker image inspect "$image" >/dev/null 2>&1 || docker pull -q "$image" >/dev/null 2>&1; then
    export AGENTD_TEST_REDIS_IMAGE=$image
  else
    install redis-server || true
  fi
}

# find_chromium looks for a browser on PATH, under the names that test/browser knows, and at the package manager. Without one, its
# tests say so.
find_chromium() {
  local name
  for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then return; fi
  done
  install chromium-headless-shell || install chromium || true
}

# A program with the race detector waits for a second when it ends, in case a goroutine has still something to tell. Tests start hundreds.
export GORACE=${GORACE:-atexit_sleep_ms=0}

# find_race sets race to the option that turns the race detector on, if it can be built: it needs a C compiler.
find_race() {
  race=-race
  if command -v "$(go env CC)" >/dev/null || install gcc libc6-dev; then return; fi
  race=
  printf 'required\trace detector\ta C compiler is missing: apt-get install gcc libc6-dev\n' >>"$AGENTD_TEST_NOT_RUN"
}
