#!/usr/bin/env bash
# Fetches the source package of XGrammar, the grammar engine of constraints (Apache-2.0), and builds the
# part that Tandem uses: xgrammar.sh FOLDER. Does nothing if FOLDER has this version, built in this way.
# pip fetches it by name and version, so a mirror is set there, and it is used if its SHA-256 matches.
set -euo pipefail

version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
build=5  # counts the ways in which it was built

folder=$1
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
[ "$(cat "$folder/version" 2>/dev/null)" != "$version-$build" ] || exit 0
work=$(realpath -m "$folder").part
rm -rf "$work"
mkdir -p "$work"
(cd "$work" && python3 -I -m pip download --quiet --no-deps --no-binary xgrammar --dest . "xgrammar==$version")
archive=$work/xgrammar-$version.tar.gz
echo "$sha256  $archive" | sha256sum --check --quiet
tar -xzf "$archive" -C "$work" --strip-components=1
# The first of two changes: forced text is searched only as far as drafts can use it, kMaxForcedBytes of
# include/tandem/token_constraint.h. A literal may have 250,000 bytes, and a grammar may never end.
matcher=$work/cpp/grammar_matcher.cc
sed -i 's/while (can_find_next_char) {/while (can_find_next_char \&\& num_accepted_chars < 512) {/' "$matcher"
grep -q 'num_accepted_chars < 512' "$matcher"
# The second: each loop counts itself, so that a budget can end long work (text/constraint/work_budget.h).
here=$(dirname "${BASH_SOURCE[0]}")/xgrammar
find "$work/cpp" -maxdepth 1 \( -name '*.cc' -o -name '*.h' \) -exec python3 -I "$here/count_loops.py" {} +
cp "$here/../../text/constraint/count_loops.h" "$work/include/"
cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O2 \
  -DSOURCE="$work" "${launcher[@]}"
cmake --build "$work/build"
rm -rf "$folder"
mkdir -p "$folder/include"
cp -r "$work/include/xgrammar" "$work/3rdparty/dlpack/include/dlpack" "$folder/include/"
cp "$work/LICENSE" "$work/NOTICE" "$folder/"
mv "$work/build/libxgrammar.a" "$folder/"
echo "$version-$build" > "$folder/version"
rm -rf "$work"
