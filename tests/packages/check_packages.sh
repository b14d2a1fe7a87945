#!/usr/bin/env bash
# Tries the files of build/packages/ (./dev package) in bare Debian roots, as root on Debian: check_packages.sh [deb] [wheel]
#   deb    Debian 12: apt installs it, the program writes a story, its server starts by the unit's command line
#   wheel  Debian 12 and 13: pip installs it, where that Python is the wheel's (else only the program is tried);
#          Python and the program write stories, and TLS works with certificates in another place
# The roots are kept in build/packages/roots/ for the next time. The mirror is that of this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
packages=$PWD/build/packages roots=$PWD/build/packages/roots
mirror=$(awk '/^URIs:/ { print $2; exit } /^deb / { print $2; exit }' /etc/apt/sources.list.d/*.sources \
  /etc/apt/sources.list 2>/dev/null)
root='' mounted=() server=''

fail() { echo "check_packages: error: $*" >&2; exit 1; }
# Runs a shell's command in the root.
inside() { chroot "$root" /usr/bin/env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash -ec "$1"; }

leave() {
  local place
  for place in "${mounted[@]}"; do umount -R "$place"; done
  mounted=()
  [ -z "$root" ] || rm -rf "$root"
  root=''
}
trap 'leave; [ -z "$server" ] || kill "$server"' EXIT

# enter SUITE PACKAGES: makes a fresh $root of a Debian release with only these packages.
enter() {
  local clean=$roots/$1
  leave
  if [ ! -e "$clean.made" ]; then
    rm -rf "$clean"
    mkdir -p "$roots"
    debootstrap --variant=minbase --include="ca-certificates${2:+,$2}" "$1" "$clean" "$mirror" >"$clean.log" 2>&1 ||
      fail "debootstrap $1: $(tail -n 1 "$clean.log")"
    touch "$clean.made"
  fi
  root=$roots/used
  rm -rf "$root"
  cp -a "$clean" "$root"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
  cp /etc/pip.conf "$root/etc/" 2>/dev/null || true
  cp --remove-destination /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  for place in proc dev; do
    mount --rbind "/$place" "$root/$place"
    mount --make-rslave "$root/$place"
    mounted+=("$root/$place")
  done
}

# story COMMAND: runs it inside, and checks that it writes words.
story() {
  local words
  words=$(inside "$1" | wc -w)
  [ "$words" -ge 20 ] || fail "$1: found $words words, must be at least 20"
}

check_deb() {
  local file started=$SECONDS start port
  file=$(ls -t "$packages"/*.deb | head -n 1)
  enter bookworm ''
  cp "$file" "$root/opt/tandem.deb"
  [ ! -e "$root/usr/lib/x86_64-linux-gnu/libzmq.so.5" ] || fail "the root is not bare"
  inside 'apt-get update -q && apt-get install -qy --no-install-recommends /opt/tandem.deb' >"$root/log" 2>&1 ||
    fail "apt-get: $(tail -n 3 "$root/log")"
  story 'tandem generate -p "Once upon a time" --max-tokens 64 --temperature 0 2>/dev/null'
  [ "$(inside 'dpkg-query -Wf "\${Conffiles}" tandem')" != "" ] || fail "/etc/tandem/config.toml is not a conffile"
  [ -z "$(find "$root/etc/systemd" -name 'tandem*')" ] || fail "the service is enabled"
  # The unit's own command line, run by an ordinary user, with another port in the file of options.
  port=18473
  sed -i "s/^#port = .*/port = $port/" "$root/etc/tandem/config.toml"
  start=$(sed -n 's/ [$]TANDEM_OPTIONS$//; s/^ExecStart=//p' "$root/usr/lib/systemd/system/tandem.service")
  inside "setpriv --reuid 65534 --regid 65534 --clear-groups $start" >"$root/log" 2>&1 &
  for _ in $(seq 100); do
    curl -sf "http://127.0.0.1:$port/ready" >/dev/null && break
    sleep 0.2
  done
  curl -sf "http://127.0.0.1:$port/v1/completions" -d '{"prompt": "Once upon a time", "max_tokens": 8}' |
    grep -q '"text"' || fail "the server: $(tail -n 3 "$root/log")"
  kill -TERM "$(pgrep -f -x "$start")"
  wait $! || fail "the server ended with $?: $(tail -n 3 "$root/log")"
  inside 'sed -i s/18473/18474/ /etc/tandem/config.toml
    dpkg --remove tandem && [ -e /etc/tandem/config.toml ] && dpkg --purge tandem && [ ! -e /etc/tandem ]' \
    >"$root/log" 2>&1 || fail "dpkg: $(tail -n 3 "$root/log")"
  echo "deb: $(basename "$file"), $(stat -c %s "$file") bytes: Debian 12, $((SECONDS - started)) s"
}

# serve_https: serves an empty folder at port 18475, with a certificate of its own.
serve_https() {
  local folder=$roots/tls
  mkdir -p "$folder/empty"
  openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2>/dev/null
  python3 - "$folder" <<'PYTHON' 2>/dev/null &
import functools, http.server, ssl, sys
folder = sys.argv[1]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder + "/empty")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 18475), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "/certificate.pem", folder + "/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
PYTHON
  server=$!
}

# fetches PROGRAM ENVIRONMENT WORD: a fetch from that server, which has nothing, ends with an error with this word.
fetches() {
  local answer
  answer=$(inside "HF_ENDPOINT=https://localhost:18475 $2 $1 fetch an/absence 2>&1 || true")
  [[ $answer == *"$3"* ]] || fail "https with ${2:-the system}: found $answer, must have $3"
}

# check_certificates PROGRAM: TLS trusts the system's certificates, those of SSL_CERT_FILE, and those where only Python looks.
check_certificates() {
  local certificate=/opt/certificate.pem
  cp "$roots/tls/certificate.pem" "$root$certificate"
  fetches "$1" '' certificate
  fetches "$1" SSL_CERT_FILE=$certificate repository
  inside 'mv /etc/ssl/certs /etc/ssl/certs.kept'
  fetches "$1" '' certificate
  if [[ $1 == */venv/* ]]; then
    inside "ln -sf $certificate /usr/lib/ssl/cert.pem"
    fetches "$1" '' repository
    inside "ln -sf /etc/ssl/certs/ca-certificates.crt /usr/lib/ssl/cert.pem"
  fi
  inside "mv /etc/ssl/certs.kept /etc/ssl/certs && cat $certificate >> /etc/ssl/certs/ca-certificates.crt"
  fetches "$1" '' repository
}

check_wheel() {
  local file suite started python program
  file=$(ls -t "$packages"/*.whl | head -n 1)
  [ -n "$server" ] || serve_https
  for suite in bookworm trixie; do
    started=$SECONDS
    enter $suite ''
    inside 'apt-get update -q && apt-get install -qy --no-install-recommends python3-venv' >"$root/log" 2>&1 ||
      fail "apt-get: $(tail -n 3 "$root/log")"
    cp "$file" "$root/opt/"
    python=$(inside 'python3 -c "import sys; print(\"cp%d%d\" % sys.version_info[:2])"')
    if [[ $file == *-$python-* ]]; then
      inside "python3 -m venv /opt/venv && /opt/venv/bin/pip install -q /opt/*.whl" >"$root/log" 2>&1 ||
        fail "pip: $(tail -n 3 "$root/log")"
      story '/opt/venv/bin/python -c "import tandem
with tandem.Engine(\"storyteller-7m\", draft=\"storyteller-1m\") as engine:
    print(engine.generate(\"Once upon a time\", max_tokens=64, temperature=0).text)"'
      program=/opt/venv/bin/tandem
    else
      inside 'python3 -m zipfile -e /opt/*.whl /opt/files && chmod +x /opt/files/tandem/bin/tandem'
      program=/opt/files/tandem/bin/tandem
    fi
    story "$program generate -p 'Once upon a time' --max-tokens 64 --temperature 0 2>/dev/null"
    check_certificates "$program"
    if inside "find /opt -name '*.libs' | xargs -I{} find {} -type f" | grep -qE 'libstdc|libc[.]'; then
      fail "the wheel has libraries of the system's own"
    fi
    echo "wheel: $(basename "$file"), $(stat -c %s "$file") bytes: $suite ($program), $((SECONDS - started)) s"
  done
}

[ "$(id -u)" = 0 ] || fail "must be root, for chroot"
command -v debootstrap >/dev/null || fail "debootstrap is missing"
for part in "${@:-deb wheel}"; do
  for each in $part; do
    case $each in
      deb | wheel) "check_$each" ;;
      *) fail "found $each, must be deb or wheel" ;;
    esac
  done
done
