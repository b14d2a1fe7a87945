#!/usr/bin/env bash
# Fetches cuobjdump and nvdisasm (NVIDIA's licence), which read machine code from objects, for toolkits
# without them: cuda_disassembler.sh FOLDER. Does nothing if FOLDER has this version, which also reads
# objects of older compilers. pip fetches the packages by name and version, so a mirror is set there, and
# they are used if their SHA-256 match.
set -euo pipefail

version=13.5.37
folder=$1
[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
work=$(realpath -m "$folder").part
rm -rf "$work"
mkdir -p "$work"
cd "$work"
python3 -I -m pip download --quiet --no-deps --only-binary :all: --dest . \
  "nvidia-cuda-cuobjdump==$version" "nvidia-cuda-nvdisasm==$version"
suffix=$version-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
sha256sum --check --quiet <<SUMS
38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58  nvidia_cuda_cuobjdump-$suffix
d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca  nvidia_cuda_nvdisasm-$suffix
SUMS
for archive in *.whl; do python3 -I -m zipfile -e "$archive" .; done
rm -- *.whl
chmod +x nvidia/cu13/bin/*
mv nvidia/cu13/bin bin
cd - >/dev/null
rm -rf "$folder"
mv "$work" "$folder"
echo "$version" > "$folder/version"
