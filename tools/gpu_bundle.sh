#!/usr/bin/env bash
# tools/gpu_bundle.sh [--bare] [FOLDER]
#
# Builds what is wanted on a machine with a GPU and puts it into one folder (build/gpu_bundle):
# tandem and gpu_test, the shared libraries that they need beside the C library, the golden models,
# the shipped pair, and run_gpu_checks.sh. --bare leaves out models and golden data, for a machine
# that has this repository: start run_gpu_checks.sh in its root. CUDAARCHS names architectures
# (90-real).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "gpu_bundle: $*" >&2; }
die() { say "error: $*"; exit 1; }

most_mb=60
bare=
if [ "${1:-}" = --bare ]; then
  bare=1
  shift
fi
folder=${1:-build/gpu_bundle}
[ $# -le 1 ] || die "usage: tools/gpu_bundle.sh [--bare] [FOLDER]"
[ ! -e "$folder" ] || [ -f "$folder/run_gpu_checks.sh" ] || [ -z "$(ls -A "$folder")" ] ||
  die "$folder holds something else"

build=build/gpu
export CUDAARCHS=${CUDAARCHS:-90-real}
# Libraries lie beside the programs, also those that other libraries want.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON -DTANDEM_TEST_ROOT=. \
  -DCMAKE_CUDA_ARCHITECTURES="$CUDAARCHS" -DCMAKE_BUILD_RPATH='$ORIGIN/lib' \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
  >/dev/null
ninja -C "$build" -j "${JOBS:-$(nproc)}" tandem gpu_test >&2

rm -rf "$folder"
mkdir -p "$folder/lib/cxx"
programs=("$build/tandem" "$build/tests/simt/gpu_test")
for program in "${programs[@]}"; do
  strip -o "$folder/$(basename "$program")" "$program"
done
# What the C library brings must be the machine's own. So should be C++'s, whose newer ones serve
# older programs, since what sanitizers put into a process may want them; ours is for where there is
# none.
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do
    case "$library" in
      */libc.so* | */libm.so* | */libdl.so* | */librt.so* | */libpthread.so*) ;;
      */libstdc++.so* | */libgcc_s.so*) cp -L "$library" "$folder/lib/cxx/" ;;
      *) cp -L "$library" "$folder/lib/" ;;
    esac
  done
cp tools/gpu_checks.py tools/torch_passes.py "$folder/"
cat >"$folder/run_gpu_checks.sh" <<'RUN'
#!/usr/bin/env bash
# run_gpu_checks.sh OUT [options]: see --help
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/tandem" --version >/dev/null 2>&1 ||
  export LD_LIBRARY_PATH="$here/lib/cxx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec python3 "$here/gpu_checks.py" "$@"
RUN
chmod +x "$folder/run_gpu_checks.sh"
if [ -z "$bare" ]; then
  mkdir -p "$folder/tests/data" "$folder/models"
  cp -r tests/data/models "$folder/tests/data/"
  cp -r models/storyteller-7m models/storyteller-1m "$folder/models/"
fi
size=$(du -sm "$folder" | cut -f1)
[ "$size" -le "$most_mb" ] || die "$folder has $size MB, more than $most_mb"
say "$folder: $size MB; there: $folder/run_gpu_checks.sh OUT"
