# How a library, a program and a test of this project are made.

add_library(scape_options INTERFACE)
target_include_directories(scape_options INTERFACE ${CMAKE_SOURCE_DIR}/include)
set(host_flags -Wall -Wextra -Wno-unknown-pragmas)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND host_flags -Wno-restrict)  # false alarms about std::string (GCC bug 105329)
endif()
if(SCAPE_NATIVE)
  list(APPEND host_flags -march=native)
endif()
if(SCAPE_WERROR)
  list(APPEND host_flags -Werror)
endif()
# `#pragma omp simd` marks the loops over a row that the host compiler may vectorise. Sums are
# ordered by hand; -ffast-math is never used.
list(APPEND host_flags -fopenmp-simd -fno-math-errno -fno-trapping-math)
# For sources whose results must have the same bits in every loop and on every machine: no fused
# multiply-adds.
set(scape_no_contraction -ffp-contract=off)
if("CUDA" IN_LIST scape_kokkos_devices)
  list(APPEND scape_no_contraction --fmad=false)
  # nvcc_wrapper passes host flags on by itself; -march=native reaches the host compiler only.
  list(REMOVE_ITEM host_flags -Wextra)
endif()
target_compile_options(scape_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${host_flags}>)
if(SCAPE_SANITIZE)
  target_compile_options(scape_options INTERFACE -fsanitize=address,undefined
                         -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(scape_options INTERFACE -fsanitize=address,undefined)
endif()

# scape_library(base SOURCES a.cpp ... USES scape::kokkos ...): the static library scape::base.
# USES is exactly what its sources and headers may include.
function(scape_library name)
  cmake_parse_arguments(A "" "" "SOURCES;USES" ${ARGN})
  add_library(scape_${name} STATIC ${A_SOURCES})
  add_library(scape::${name} ALIAS scape_${name})
  target_link_libraries(scape_${name} PUBLIC scape_options ${A_USES})
endfunction()

# How the tests start P ranks. Open MPI refuses to run as root, and more ranks than cores, unless
# told otherwise; other launchers do not know these flags.
if(MPIEXEC_EXECUTABLE)
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpiexec_version
                  ERROR_QUIET)
  if(mpiexec_version MATCHES "Open MPI|OpenRTE|prte")
    set(SCAPE_MPIEXEC_FLAGS --allow-run-as-root --oversubscribe --bind-to none CACHE STRING
        "Flags of the MPI launcher in the tests")
  endif()
endif()
set(scape_test_environment "OMP_NUM_THREADS=1;OMP_PROC_BIND=false;OPENBLAS_NUM_THREADS=1")
if(SCAPE_SANITIZE)
  # What MPI libraries and hwloc keep until the end would be reported as leaks.
  list(APPEND scape_test_environment "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1")
endif()

# scape_test(optim SOURCES ... USES ... [RANKS 1 2 3 4]): one Catch2 binary, run once, or once for
# each number of ranks (and then linked to the MPI back end).
function(scape_test name)
  cmake_parse_arguments(A "" "" "SOURCES;USES;RANKS" ${ARGN})
  set(target test_${name})
  add_executable(${target} ${A_SOURCES})
  target_link_libraries(${target} PRIVATE scape_test_main ${A_USES})
  if(NOT A_RANKS)
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${scape_test_environment}" TIMEOUT 600)
  endif()
  foreach(ranks IN LISTS A_RANKS)
    if(MPIEXEC_EXECUTABLE)
      add_test(NAME ${name}.${ranks}_ranks
               COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
                       ${SCAPE_MPIEXEC_FLAGS} $<TARGET_FILE:${target}>)
      set_tests_properties(${name}.${ranks}_ranks PROPERTIES PROCESSORS ${ranks} TIMEOUT 600
                           ENVIRONMENT "${scape_test_environment}")
    endif()
  endforeach()
endfunction()
