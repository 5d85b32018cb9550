#!/usr/bin/env bash
# What a user does with an installed library: finds it through CMake and through pkg-config, builds and runs the
# examples, includes any header, starts the program.
# usage: tests/install.sh SOURCE_DIR BUILD_DIR CXX
set -euo pipefail
source=$1 build=$2 cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }

# From another folder than the one installed to: nothing may remember where it was.
mv "$prefix" "$work/moved"
prefix=$work/moved
cmake -S "$source/examples" -B "$work/examples" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_BUILD_TYPE=Debug >"$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
ninja -C "$work/examples" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
for example in small_model router two_layer own_op; do
  "$work/examples/$example" || { echo "$example failed"; exit 1; }
done

pc=$(find "$prefix" -name mixtape.pc -printf %h)
export PKG_CONFIG_PATH=$pc
# As README says: it starts without LD_LIBRARY_PATH.
# shellcheck disable=SC2046
"$cxx" "$source/examples/own_op.cpp" -o "$work/own_op" $(pkg-config --cflags --libs mixtape)
env -u LD_LIBRARY_PATH "$work/own_op" >/dev/null

# Nothing that an installed header includes was left behind.
(cd "$prefix/include" && find mixtape -name '*.h' -printf '#include "%p"\n' | sort) >"$work/headers.cpp"
# shellcheck disable=SC2046
"$cxx" -fsyntax-only -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags mixtape) "$work/headers.cpp"
# Who handles no JSON needs no header of another library; who does asks for them.
# shellcheck disable=SC2046
"$cxx" -M $(pkg-config --cflags mixtape) "$work/headers.cpp" >"$work/included"
if grep -E 'nlohmann|fmt/|CLI/|dnnl|hwy/' "$work/included" || grep -E 'Requires' "$pc/mixtape.pc" ||
  grep -r nlohmann "$prefix" --include='*.cmake' --include='*.pc'; then
  echo "users would need another library's headers"
  exit 1
fi
# shellcheck disable=SC2046
"$cxx" -fsyntax-only -DMIXTAPE_JSON $(pkg-config --cflags mixtape) "$work/headers.cpp"
if find "$prefix/include" -name '*_cpu.h' -o -name '*_gpu.h' -o -name '*_oracle.h' -o -path '*/backend/*/*' | grep .; then
  echo "installed, but not for users"
  exit 1
fi

# The .deb's own part: below /usr Debian's zsh looks elsewhere.
cmake --install "$build" --component debian --prefix "$work/debian" >/dev/null
[ -e "$work/debian/share/zsh/vendor-completions/_mixtape" ] || { echo "the .deb lacks zsh's completion"; exit 1; }

"$prefix/bin/mixtape" doctor >/dev/null
