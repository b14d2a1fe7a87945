#!/usr/bin/env bash
# run_gpu_checks.sh OUT [options]: starts gpu_checks.py of the same folder; see --help.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The C++ library is the machine's own, unless that is older than the programs.
"$here/tandem" --version >/dev/null 2>&1 ||
  export LD_LIBRARY_PATH="$here/lib/cxx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec python3 "$here/gpu_checks.py" "$@"
