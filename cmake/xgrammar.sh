#!/usr/bin/env bash
# Fetches XGrammar, the grammar engine of constraints (Apache-2.0), as its source package, and builds
# what Tandem uses of it: xgrammar.sh FOLDER. Does nothing where FOLDER has this version. It is
# fetched by name and version with pip, which is where a mirror is set, and used if its SHA-256 is
# this one.
set -euo pipefail

version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80

folder=$1
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
work=$(realpath -m "$folder").part
rm -rf "$work"
mkdir -p "$work"
python3 -m pip download --quiet --no-deps --no-binary xgrammar --dest "$work" "xgrammar==$version"
archive=$work/xgrammar-$version.tar.gz
echo "$sha256  $archive" | sha256sum --check --quiet
tar -xzf "$archive" -C "$work" --strip-components=1
cmake -S "$(dirname "${BASH_SOURCE[0]}")/xgrammar" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O2 \
  -DSOURCE="$work" "${launcher[@]}"
cmake --build "$work/build"
rm -rf "$folder"
mkdir -p "$folder/include"
cp -r "$work/include/xgrammar" "$work/3rdparty/dlpack/include/dlpack" "$folder/include/"
cp "$work/LICENSE" "$work/NOTICE" "$folder/"
mv "$work/build/libxgrammar.a" "$folder/"
echo "$version" > "$folder/version"
rm -rf "$work"
