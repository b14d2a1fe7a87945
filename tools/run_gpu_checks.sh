#!/usr/bin/env bash
# run_gpu_checks.sh OUT [options]: runs gpu_checks.py from the same folder; see --help.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Use the machine's C++ library, or the bundled one if the machine's is too old for the programs.
"$here/tandem" --version >/dev/null 2>&1 ||
  export LD_LIBRARY_PATH="$here/lib/cxx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec python3 "$here/gpu_checks.py" "$@"
