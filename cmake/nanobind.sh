#!/usr/bin/env bash
# Fetches nanobind (BSD), with which the Python module is built: nanobind.sh FOLDER. Does nothing if
# FOLDER has this version. The package has only sources. pip fetches it by name and version, so a mirror
# is set there, and it is used if its SHA-256 matches.
set -euo pipefail

version=2.12.0
sha256=a10d3d88e691dcdf22696f9acd893fda3c5a05635763aea238829d274fcad480

folder=$1
[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
work=$(realpath -m "$folder").part
rm -rf "$work"
mkdir -p "$work"
(cd "$work" && python3 -I -m pip download --quiet --no-deps --only-binary nanobind --dest . "nanobind==$version")
archive=$work/nanobind-$version-py3-none-any.whl
echo "$sha256  $archive" | sha256sum --check --quiet
python3 -I -m zipfile -e "$archive" "$work"
rm -rf "$folder" "$archive"
mv "$work" "$folder"
echo "$version" > "$folder/version"
