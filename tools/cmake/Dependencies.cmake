# One clean target for each package, whatever version and packaging was found:
#   scape::kokkos scape::kokkoskernels scape::mpi scape::hdf5 scape::dnnl scape::toml scape::cli
#   scape::fmt scape::json scape::catch2
# Include directories of packages are SYSTEM, so that their warnings are not ours.
# Optional packages that are missing leave their target undefined.

include(CMakePushCheckState)

function(scape_add_interface name)
  cmake_parse_arguments(A "" "" "LIBRARIES;INCLUDES" ${ARGN})
  string(REPLACE "::" "_" plain ${name})
  add_library(${plain} INTERFACE)
  add_library(${name} ALIAS ${plain})
  target_link_libraries(${plain} INTERFACE ${A_LIBRARIES})
  target_include_directories(${plain} SYSTEM INTERFACE ${A_INCLUDES})
endfunction()

# --- Kokkos and Kokkos Kernels ---------------------------------------------------------------
find_package(Kokkos REQUIRED)
find_package(KokkosKernels REQUIRED)
if(TARGET Kokkos::kokkos AND TARGET Kokkos::kokkoskernels)
  set(scape_kokkos_packaging "as installed by Kokkos")
  scape_add_interface(scape::kokkos LIBRARIES Kokkos::kokkos)
  scape_add_interface(scape::kokkoskernels LIBRARIES Kokkos::kokkoskernels)
  set(scape_kokkos_version ${Kokkos_VERSION})
  set(scape_kokkos_devices ${Kokkos_DEVICES})
elseif(TARGET trilinos_kokkoscore AND TARGET trilinos_kokkoskernels)
  # Trilinos as Debian packages it: bare library targets, and include paths that do not exist.
  set(scape_kokkos_packaging "Trilinos")
  find_path(SCAPE_TRILINOS_INCLUDE Kokkos_Core.hpp PATH_SUFFIXES trilinos REQUIRED)
  set_target_properties(trilinos_kokkoscore PROPERTIES INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  scape_add_interface(scape::kokkos LIBRARIES trilinos_kokkoscontainers trilinos_kokkoscore
                      INCLUDES ${SCAPE_TRILINOS_INCLUDE})
  scape_add_interface(scape::kokkoskernels LIBRARIES trilinos_kokkoskernels scape::kokkos
                      INCLUDES ${SCAPE_TRILINOS_INCLUDE})
  file(STRINGS ${SCAPE_TRILINOS_INCLUDE}/KokkosCore_config.h version_line
       REGEX "#define KOKKOS_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+$" number "${version_line}")
  math(EXPR major "${number} / 10000")
  math(EXPR minor "${number} / 100 % 100")
  math(EXPR patch "${number} % 100")
  set(scape_kokkos_version ${major}.${minor}.${patch})
  set(scape_kokkos_devices SERIAL)
  file(STRINGS ${SCAPE_TRILINOS_INCLUDE}/KokkosCore_config.h has_openmp
       REGEX "#define KOKKOS_ENABLE_OPENMP")
  if(has_openmp)
    list(APPEND scape_kokkos_devices OPENMP)
  endif()
else()
  message(FATAL_ERROR "Kokkos ${Kokkos_VERSION} was found in ${Kokkos_DIR}, but neither the target "
                      "Kokkos::kokkos nor Trilinos' trilinos_kokkoscore came with it")
endif()

# --- MPI, HDF5, BLAS alternatives ------------------------------------------------------------
find_package(MPI COMPONENTS CXX)
if(MPI_CXX_FOUND)
  scape_add_interface(scape::mpi LIBRARIES MPI::MPI_CXX)
  # The C++ bindings of old MPI versions are neither needed nor wanted.
  target_compile_definitions(scape_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endif()

set(HDF5_PREFER_PARALLEL ${MPI_CXX_FOUND})
find_package(HDF5 REQUIRED COMPONENTS C)
scape_add_interface(scape::hdf5 LIBRARIES ${HDF5_C_LIBRARIES} INCLUDES ${HDF5_C_INCLUDE_DIRS})
target_compile_definitions(scape_hdf5 INTERFACE ${HDF5_C_DEFINITIONS})
if(HDF5_IS_PARALLEL AND TARGET scape::mpi)
  target_link_libraries(scape_hdf5 INTERFACE scape::mpi)
endif()

# oneDNN's own CMake package wants OpenCL's development files even where only its CPU part is used.
option(SCAPE_ONEDNN "Use oneDNN for matrix products on the host where it is found" ON)
find_path(SCAPE_DNNL_INCLUDE oneapi/dnnl/dnnl.h)
find_library(SCAPE_DNNL_LIBRARY dnnl)
if(SCAPE_ONEDNN AND SCAPE_DNNL_INCLUDE AND SCAPE_DNNL_LIBRARY)
  find_package(OpenMP COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    # Its threads are OpenMP's, so their number is set through OpenMP.
    scape_add_interface(scape::dnnl LIBRARIES ${SCAPE_DNNL_LIBRARY} OpenMP::OpenMP_CXX
                        INCLUDES ${SCAPE_DNNL_INCLUDE})
    file(STRINGS ${SCAPE_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h lines
         REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" lines "${lines}")
    string(REPLACE ";" "." scape_dnnl_version "${lines}")
  endif()
endif()

# --- Small libraries -------------------------------------------------------------------------
find_package(fmt REQUIRED)
scape_add_interface(scape::fmt LIBRARIES fmt::fmt)
if("CUDA" IN_LIST scape_kokkos_devices)
  # fmt 9 checks format strings in a way that nvcc 13 does not compile as C++20.
  target_compile_definitions(scape_fmt INTERFACE FMT_USE_CONSTEXPR=1)
endif()
find_package(nlohmann_json REQUIRED)
scape_add_interface(scape::json LIBRARIES nlohmann_json::nlohmann_json)
find_package(CLI11 REQUIRED)
scape_add_interface(scape::cli LIBRARIES CLI11::CLI11)
find_package(tomlplusplus REQUIRED)
scape_add_interface(scape::toml LIBRARIES tomlplusplus::tomlplusplus)
find_package(Threads REQUIRED)

if(SCAPE_TESTS)
  find_package(Catch2 REQUIRED)  # 2 or 3; tests/support/catch.hpp knows both
  scape_add_interface(scape::catch2 LIBRARIES Catch2::Catch2)
endif()
