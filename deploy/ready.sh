#!/usr/bin/env bash
# Tells whether the server at a port of this machine takes new work: ready.sh PORT. Needs only bash.
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 5 _ status _ <&3
[ "$status" = 200 ]
