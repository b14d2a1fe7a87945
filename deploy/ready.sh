#!/usr/bin/env bash
# Exits with 0 if the server at a local port accepts new work: ready.sh PORT. Needs only bash.
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
read -r -t 5 _ status _ <&3
[ "$status" = 200 ]
