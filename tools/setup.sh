# Shared by tools/quickstart and tools/test: installs what is missing, configures, builds.
# Meant to be sourced. Sets: root (of the project), program. Honours: PRESET (default cpu).

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PRESET=${PRESET:-cpu}
program=$root/build/$PRESET/bin/scape

say() { printf '\n== %s\n' "$*"; }

# what                          Debian/Ubuntu package            module (TACC; others differ)   Spack
requirements='
C++20 compiler                  g++                              gcc/13                         gcc
CMake 3.22                      cmake                            cmake                          cmake
Ninja                           ninja-build                      ninja                          ninja
Kokkos 3.4 to 5                 libtrilinos-kokkos-dev           (build it)                     kokkos
Kokkos Kernels                  libtrilinos-kokkos-kernels-dev   (build it)                     kokkos-kernels
MPI                             libopenmpi-dev                   openmpi                        openmpi
MPI launcher                    openmpi-bin                      openmpi                        openmpi
HDF5                            libhdf5-dev                      hdf5                           hdf5
oneDNN (hosts)                  libdnnl-dev                      (optional)                     onednn
toml++                          libtomlplusplus-dev              (build it)                     tomlplusplus
CLI11                           libcli11-dev                     (build it)                     cli11
fmt                             libfmt-dev                       (build it)                     fmt
nlohmann-json                   nlohmann-json3-dev               (build it)                     nlohmann-json
Catch2 2 or 3 (tests)           catch2                           (build it)                     catch2
'
extra_packages=${extra_packages:-}

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

install_packages() {
  command -v dpkg-query >/dev/null || return 0  # not Debian: configuring will tell what is missing
  local missing=() name
  for name in $(printf '%s' "$requirements" | cut -c33-63) $extra_packages; do
    installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "missing packages, and neither root nor sudo to install them: ${missing[*]}" >&2
      list_requirements
      return 0  # they may be there under other names; configuring decides
    fi
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
}

list_requirements() {
  {
    echo 'What scape is built from:'
    printf '%-32s%-33s%-31s%s' what 'Debian/Ubuntu package' module Spack
    echo "$requirements"
    echo 'Packages outside the usual prefixes: set CMAKE_PREFIX_PATH and start again.'
  } >&2
}

build() {
  say "configuring and building preset $PRESET (first time: some minutes)"
  local log=$root/build/$PRESET.configure.log
  mkdir -p "$root/build"
  local generator=()
  if [ ! -e "$root/build/$PRESET/CMakeCache.txt" ] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  if ! (cd "$root" && cmake --preset "$PRESET" "${generator[@]}" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    list_requirements
    exit 2
  fi
  sed -n '/^-- scape /,/^-- *$/p' "$log"
  cmake --build "$root/build/$PRESET" --parallel "$(nproc)"
}

# Open MPI refuses to start as root, and to start more ranks than cores, unless it is told that
# this is meant. Other launchers ignore these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
