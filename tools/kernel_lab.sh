#!/usr/bin/env bash
# tools/kernel_lab.sh [FOLDER]
#
# Builds kernel_lab for a machine with an H100 or H200 and packs it into FOLDER.tar.xz
# [build/kernel_lab.tar.xz], at most 6 MiB: the program, which needs only the machine's C library and
# driver, and kernel_lab_report.py. CUDAARCHS selects other architectures than 90a-real.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "kernel_lab: $*" >&2; }
die() { say "error: $*"; exit 1; }

most_bytes=$((6 << 20))
folder=${1:-build/kernel_lab}
[ $# -le 1 ] || die "usage: tools/kernel_lab.sh [FOLDER]"
[ ! -e "$folder" ] || [ -f "$folder/kernel_lab" ] || [ -z "$(ls -A "$folder")" ] ||
  die "$folder: must be empty or an earlier kernel_lab"
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  say "skipped: nvcc is missing, which compiles the device code"
  exit 0
fi

# The folder of tools/gpu_bundle.sh, with the same settings: both share what they compile.
build=build/gpu
export CUDAARCHS=${CUDAARCHS:-90a-real}
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON -DTANDEM_TEST_ROOT=. \
  -DCMAKE_CUDA_ARCHITECTURES="$CUDAARCHS" -DCMAKE_BUILD_RPATH='$ORIGIN/lib' \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
  >/dev/null
ninja -C "$build" -j "${JOBS:-$(nproc)}" kernel_lab >&2

rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder"
strip -o "$folder/kernel_lab" "$build/tools/kernel_lab/kernel_lab"
others=$(ldd "$folder/kernel_lab" | awk '$2 == "=>" {print $1}' |
  grep -Ev '^(libc|libm|libdl|librt|libpthread)\.so' || true)
[ -z "$others" ] || die "kernel_lab must need no library but the C library, but it needs: $others"
cp tools/kernel_lab_report.py "$folder/"
name=$(basename "$folder")
tar -C "$(dirname "$folder")" -cf - "$name" | xz -9 -T1 >"$folder.tar.xz"
size=$(stat -c %s "$folder.tar.xz")
[ "$size" -le "$most_bytes" ] || die "$folder.tar.xz: at most $most_bytes bytes, got $size"
say "$folder.tar.xz has $size bytes; run there, in the root of this repository:"
cat <<COMMANDS
python3 -I -m tarfile -e $folder.tar.xz /tmp
/tmp/$name/kernel_lab --out OUT.jsonl
COMMANDS
