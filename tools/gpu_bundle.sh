#!/usr/bin/env bash
# tools/gpu_bundle.sh [--with-data] [FOLDER]
#
# Builds the programs for a machine with an H100 or H200 and packs them into FOLDER.tar.xz
# [build/gpu_bundle.tar.xz], at most 14 MiB: tandem, gpu_test and kernel_lab, the shared libraries that they
# need except the C library, and run_gpu_checks.sh, which takes golden data and models from the
# repository in which it is started. --with-data packs these too, for a machine without the
# repository; the limit is then 64 MiB. CUDAARCHS selects other architectures than 90a-real.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "gpu_bundle: $*" >&2; }
die() { say "error: $*"; exit 1; }

most_bytes=$((14 << 20))
with_data=
if [ "${1:-}" = --with-data ]; then
  with_data=1
  most_bytes=$((64 << 20))
  shift
fi
folder=${1:-build/gpu_bundle}
[ $# -le 1 ] || die "usage: tools/gpu_bundle.sh [--with-data] [FOLDER]"
[ ! -e "$folder" ] || [ -f "$folder/run_gpu_checks.sh" ] || [ -z "$(ls -A "$folder")" ] ||
  die "$folder: must be empty or an earlier bundle"
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  say "skipped: nvcc is missing, which compiles the device code"
  exit 0
fi

build=build/gpu
export CUDAARCHS=${CUDAARCHS:-90a-real}
# Programs and libraries look for libraries in lib/.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON -DTANDEM_TEST_ROOT=. \
  -DCMAKE_CUDA_ARCHITECTURES="$CUDAARCHS" -DCMAKE_BUILD_RPATH='$ORIGIN/lib' \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
  >/dev/null
ninja -C "$build" -j "${JOBS:-$(nproc)}" tandem gpu_test kernel_lab >&2

rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder/lib/cxx"
programs=("$build/tandem" "$build/tests/simt/gpu_test" "$build/tools/kernel_lab/kernel_lab")
for program in "${programs[@]}"; do
  strip -o "$folder/$(basename "$program")" "$program"
done
# Use the machine's C library, and its C++ library too if possible: a newer one runs older programs,
# and a sanitizer may need the newer one. The bundled C++ library is a fallback.
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do
    case "$library" in
      */libc.so* | */libm.so* | */libdl.so* | */librt.so* | */libpthread.so*) continue ;;
      */libstdc++.so* | */libgcc_s.so*) to="$folder/lib/cxx" ;;
      *) to="$folder/lib" ;;
    esac
    strip -o "$to/$(basename "$library")" "$library"
  done
cp tools/gpu_checks.py tools/torch_passes.py tools/run_gpu_checks.sh "$folder/"
if [ -n "$with_data" ]; then
  mkdir -p "$folder/tests/data" "$folder/models"
  cp -r tests/data/models "$folder/tests/data/"
  cp -r models/storyteller-7m models/storyteller-1m "$folder/models/"
fi
name=$(basename "$folder")
tar -C "$(dirname "$folder")" -cf - "$name" | xz -9 -T1 >"$folder.tar.xz"
size=$(stat -c %s "$folder.tar.xz")
[ "$size" -le "$most_bytes" ] || die "$folder.tar.xz: at most $most_bytes bytes, got $size"
say "$folder.tar.xz has $size bytes; run there, in the root of this repository:"
cat <<COMMANDS
python3 -I -m tarfile -e $folder.tar.xz /tmp
/tmp/$name/run_gpu_checks.sh OUT/1 --group 1
/tmp/$name/run_gpu_checks.sh OUT/2 --group 2
COMMANDS
