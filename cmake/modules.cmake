# One object library per folder, so that each folder's tests link only what they use, and one shared library of all.
# Where MIXTAPE_QUICK, the folders of the ops are compiled together, and tests link the shared library.
#   mixtape_module(io)                    mixtape/io/*.cpp
#   mixtape_op(softmax)                   mixtape/ops/softmax/*.cpp; further names are the ops that it calls
# Files that end in _test.cpp and _bench.cpp become programs of that name; those that end in _check.cpp are linked
# into the folder's tests and the program, never into the library.

add_library(mixtape_flags INTERFACE)
target_include_directories(mixtape_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_include_directories(mixtape_flags SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
# Highway: on x86-64 one portable target, AVX2 and AVX-512; the middle steps would only lengthen the build.
target_compile_definitions(mixtape_flags INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)")
target_compile_options(mixtape_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                       $<$<BOOL:${MIXTAPE_WERROR}>:-Werror> -ffp-contract=off)
# g++ 12 stores {a, a, 0, 0} as {a, a, a, a} where it vectorizes straight-line code for AVX-512: it takes the constant,
# whose upper half is 0, for a repetition of its lower one.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(mixtape_flags INTERFACE -fno-tree-slp-vectorize)
endif()
target_link_libraries(mixtape_flags INTERFACE ${CMAKE_DL_LIBS} OpenMP::OpenMP_CXX ${DNNL_LIBRARY} PkgConfig::HWY PkgConfig::PCRE2
                      PkgConfig::UTF8PROC nlohmann_json::nlohmann_json)
# For those who handle JSON (io/json_fwd.h): the folders above the ops, and programs.
add_library(mixtape_json INTERFACE)
target_compile_definitions(mixtape_json INTERFACE MIXTAPE_JSON)
set(handles_json "/mixtape/(io|quant|nn|calib)/")
include(cmake/quick.cmake)
# Builds under a sanitizer are for finding mistakes: one instruction set, little optimization, short debug lines.
set(sanitizers "")
if(MIXTAPE_SANITIZE)
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(MIXTAPE_TSAN)
  set(sanitizers -fsanitize=thread)
elseif(MIXTAPE_FUZZ)
  set(sanitizers -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
endif()
if(sanitizers)
  target_compile_options(mixtape_flags INTERFACE ${sanitizers} -O1)
  target_link_options(mixtape_flags INTERFACE ${sanitizers})
endif()
if(sanitizers AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  mixtape_one_instruction_set(avx2)
elseif(sanitizers OR MIXTAPE_TARGETS STREQUAL "native" OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  mixtape_native_set(set)
  mixtape_one_instruction_set("${set}")
endif()

# What runs on the simulator's fibers: an exception leaves AddressSanitizer's marks on a stack that it doesn't know.
set(fiber_options "")
if(MIXTAPE_SANITIZE)
  set(fiber_options --param=asan-stack=0)
elseif(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(fiber_options -fno-tree-vectorize)  # g++ 12 for arm64 fails within its vectorizer
endif()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/kernels)
set(MIXTAPE_OBJECTS "")     # every object library, in order
set(MIXTAPE_BASE "")        # those below the ops
set(MIXTAPE_SIM_OBJECTS "") # GPU kernels compiled for the simulator, and the simulator: in tests only
set(MIXTAPE_CHECK_OBJECTS "") # the ops' registered checks: in tests and the program only
set(MIXTAPE_TEST_LIST "")   # "<program>|<source>|<object libraries>"
set(MIXTAPE_BENCH_LIST "")

# Every <name>_gpu.cu and <name>_cuda.cu of a folder, where nvcc is there, becomes a fatbin inside the folder's
# objects: Hopper's own code, and PTX that the driver compiles for other cards. For the simulator the _gpu.cu files
# are C++.
function(mixtape_gpu_kernels target folder)
  file(GLOB shared_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mixtape/${folder}/*_gpu.cu)
  file(GLOB cuda_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mixtape/${folder}/*_cuda.cu)
  if(shared_kernels AND MIXTAPE_TESTS)
    set_source_files_properties(${shared_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
    mixtape_objects(sim ${target}_sim mixtape_kernels_sim mixtape_kernels_sim "${shared_kernels}")
    target_compile_options(${sim} PRIVATE ${fiber_options})
    list(APPEND MIXTAPE_SIM_OBJECTS ${sim})
  endif()
  if(folder STREQUAL "backend/sim")
    target_compile_options(${target} PRIVATE ${fiber_options})
    list(APPEND MIXTAPE_SIM_OBJECTS ${target})
  endif()
  list(REMOVE_DUPLICATES MIXTAPE_SIM_OBJECTS)
  set(MIXTAPE_SIM_OBJECTS "${MIXTAPE_SIM_OBJECTS}" PARENT_SCOPE)
  set(sim "${sim}" PARENT_SCOPE)
  if(NOT NVCC OR folder STREQUAL "backend/sim")
    return()
  endif()
  foreach(kernel ${shared_kernels} ${cuda_kernels})
    get_filename_component(name ${kernel} NAME_WE)
    set(fatbin ${CMAKE_BINARY_DIR}/kernels/${name}.fatbin)
    set(embedded ${CMAKE_BINARY_DIR}/kernels/${name}.cpp)
    # Files that use what Hopper alone has say so; the others' words for matrix units are Ampere's.
    file(STRINGS ${kernel} for_hopper REGEX "^// sm_90a alone" LIMIT_COUNT 1)
    set(ptx 80)
    if(kernel IN_LIST shared_kernels)
      set(ptx 75)
    elseif(for_hopper)
      set(ptx 0)
    endif()
    add_custom_command(
      OUTPUT ${fatbin} ${embedded}
      COMMAND ${CMAKE_COMMAND} -DNVCC=${NVCC} -DSOURCE=${kernel} -DFATBIN=${fatbin} -DEMBEDDED=${embedded}
              -DINCLUDE=${CMAKE_SOURCE_DIR} -DPTX=${ptx} -P ${CMAKE_SOURCE_DIR}/cmake/gpu_kernels.cmake
      DEPENDS ${kernel} ${CMAKE_SOURCE_DIR}/cmake/gpu_kernels.cmake
      DEPFILE ${fatbin}.d
      COMMENT "nvcc ${name}.cu" VERBATIM)
    target_sources(${target} PRIVATE ${embedded})
    set_source_files_properties(${embedded} PROPERTIES OBJECT_DEPENDS ${fatbin})
  endforeach()
endfunction()

function(mixtape_folder target folder uses)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mixtape/${folder}/*.cpp)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mixtape/${folder}/*_test.cpp)
  file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mixtape/${folder}/*_bench.cpp)
  file(GLOB checks CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mixtape/${folder}/*_check.cpp)
  if(NOT folder MATCHES "^ops/")
    set(checks "")
  endif()
  if(tests OR benches OR checks)
    list(REMOVE_ITEM sources ${tests} ${benches} ${checks})
  endif()
  set(sim "")
  if(sources)
    string(REGEX REPLACE "/.*" "" group mixtape_${folder})  # all ops are one group, and all backends
    if(folder STREQUAL "backend/sim")
      set(group ${target})
    endif()
    mixtape_objects(target ${target} ${group} ${target} "${sources}")
    if("/mixtape/${folder}/" MATCHES "${handles_json}")
      target_link_libraries(${target} PRIVATE mixtape_json)
    endif()
    if(NOT folder STREQUAL "backend/sim")
      list(APPEND MIXTAPE_OBJECTS ${target})
    endif()
    mixtape_gpu_kernels(${target} ${folder})
    list(APPEND uses ${target} ${sim})
  endif()
  set(${folder}_uses "${uses}" PARENT_SCOPE)
  if(checks)
    mixtape_objects(checks ${target}_checks mixtape_checks mixtape_checks "${checks}")
    list(APPEND MIXTAPE_CHECK_OBJECTS ${checks})
    list(APPEND uses ${checks})
  endif()
  list(REMOVE_DUPLICATES MIXTAPE_OBJECTS)
  list(REMOVE_DUPLICATES MIXTAPE_CHECK_OBJECTS)
  list(REMOVE_DUPLICATES uses)
  string(REPLACE ";" "," uses "${uses}")
  foreach(test ${tests})
    get_filename_component(name ${test} NAME_WE)
    list(APPEND MIXTAPE_TEST_LIST "${name}|${test}|${uses}")
  endforeach()
  foreach(bench ${benches})
    get_filename_component(name ${bench} NAME_WE)
    list(APPEND MIXTAPE_BENCH_LIST "${name}|${bench}|${uses}")
  endforeach()
  set(MIXTAPE_OBJECTS "${MIXTAPE_OBJECTS}" PARENT_SCOPE)
  set(MIXTAPE_SIM_OBJECTS "${MIXTAPE_SIM_OBJECTS}" PARENT_SCOPE)
  set(MIXTAPE_CHECK_OBJECTS "${MIXTAPE_CHECK_OBJECTS}" PARENT_SCOPE)
  set(MIXTAPE_TEST_LIST "${MIXTAPE_TEST_LIST}" PARENT_SCOPE)
  set(MIXTAPE_BENCH_LIST "${MIXTAPE_BENCH_LIST}" PARENT_SCOPE)
endfunction()

# The modules below the ops are linked by every test; those above link everything declared before them.
macro(mixtape_module folder)
  string(REPLACE "/" "_" module_target "mixtape_${folder}")
  mixtape_folder(${module_target} ${folder} "${MIXTAPE_OBJECTS};${MIXTAPE_SIM_OBJECTS}")
  if("${folder}" MATCHES "^(core|runtime|backend/.*|autograd|testing)$")
    set(MIXTAPE_BASE "${MIXTAPE_OBJECTS};${MIXTAPE_SIM_OBJECTS}")
  endif()
endmacro()

macro(mixtape_op name)
  set(op_uses ${MIXTAPE_BASE})
  foreach(dep ${ARGN})
    list(APPEND op_uses ${ops/${dep}_uses})
  endforeach()
  list(REMOVE_DUPLICATES op_uses)
  mixtape_folder(op_${name} ops/${name} "${op_uses}")
  list(APPEND MIXTAPE_OPS ${name})
endmacro()

# Adds FUNCTION of HEADER to the target: the commit's name, looked up in each build; what is linked of it is linked again
# only where it changed.
function(mixtape_commit target header function)
  set(source ${CMAKE_BINARY_DIR}/${target}_commit.cpp)
  add_custom_target(${target}_commit BYPRODUCTS ${source}
                    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${source} -DHEADER=${header}
                            -DFUNCTION=${function} -P ${CMAKE_SOURCE_DIR}/cmake/commit.cmake)
  target_sources(${target} PRIVATE ${source})
  add_dependencies(${target} ${target}_commit)
endfunction()

# Every object of the library; whatever BUILD_SHARED_LIBS says, none of them is dropped by the linker.
macro(mixtape_library)
  set(MIXTAPE_ARCHIVE "")
  if(BUILD_SHARED_LIBS)
    add_library(mixtape SHARED)
    set(holder mixtape)
    set_target_properties(mixtape PROPERTIES VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                          INSTALL_RPATH "\$ORIGIN;\$ORIGIN/mixtape" BUILD_WITH_INSTALL_RPATH ON
                          INSTALL_RPATH_USE_LINK_PATH ON)
    if(NOT sanitizers)
      target_link_options(mixtape PRIVATE -Wl,--no-undefined)
    endif()
  else()
    set(MIXTAPE_ARCHIVE mixtape_archive)
    add_library(mixtape_archive STATIC)
    set_target_properties(mixtape_archive PROPERTIES OUTPUT_NAME mixtape EXPORT_NAME archive)
    add_library(mixtape INTERFACE)
    target_link_libraries(mixtape INTERFACE $<BUILD_INTERFACE:mixtape_archive>)
    target_link_options(mixtape INTERFACE
                        "$<BUILD_INTERFACE:LINKER:--whole-archive,$<TARGET_FILE:mixtape_archive>,--no-whole-archive>")
    set(holder mixtape_archive)
  endif()
  set(library_objects ${MIXTAPE_OBJECTS})
  list(REMOVE_ITEM library_objects mixtape_testing)
  if(MIXTAPE_QUICK)
    mixtape_batches()
  endif()
  foreach(object ${library_objects})
    target_sources(${holder} PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
  mixtape_commit(${holder} mixtape/core/library_commit.h mixtape::library_commit)
  target_link_libraries(${holder} PRIVATE "$<BUILD_INTERFACE:mixtape_flags>")
  target_include_directories(${holder} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${holder} INTERFACE cxx_std_20)
endmacro()

function(mixtape_program entry out)
  string(REPLACE "|" ";" parts "${entry}")
  list(GET parts 0 name)
  list(GET parts 1 source)
  list(GET parts 2 uses)
  string(REPLACE "," ";" uses "${uses}")
  if(source MATCHES "/mixtape/(core|runtime|backend/[a-z]+|autograd|testing)/")
    set(uses ${MIXTAPE_BASE})
  endif()
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE mixtape_flags)
  if(source MATCHES "${handles_json}")
    target_link_libraries(${name} PRIVATE mixtape_json)
  endif()
  if(MIXTAPE_TESTS)
    target_link_libraries(${name} PRIVATE Boost::context)  # of the simulator
  endif()
  if(MIXTAPE_QUICK)
    list(REMOVE_ITEM uses ${library_objects})
    target_link_libraries(${name} PRIVATE mixtape)
  endif()
  foreach(object ${uses})
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
  set(${out} ${name} PARENT_SCOPE)
endfunction()

macro(mixtape_tests)
  find_package(GTest REQUIRED)
  set(test_devices cpu,sim)
  if(MIXTAPE_SANITIZE OR CMAKE_CROSSCOMPILING)
    set(test_devices cpu)  # the simulator checks every access of a kernel itself
  endif()
  foreach(entry ${MIXTAPE_TEST_LIST})
    mixtape_program("${entry}" test_name)
    target_link_libraries(${test_name} PRIVATE GTest::gtest GTest::gmock GTest::gtest_main)
    add_test(NAME ${test_name} COMMAND ${test_name})
    set_tests_properties(${test_name} PROPERTIES WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} ENVIRONMENT
                         "OMP_NUM_THREADS=2;OMP_WAIT_POLICY=passive;MIXTAPE_TEST_DEVICES=${test_devices};MIXTAPE_TEST_TMP=${CMAKE_BINARY_DIR}")
  endforeach()
  if(EXISTS ${CMAKE_SOURCE_DIR}/tests/CMakeLists.txt)
    add_subdirectory(tests)
  endif()
endmacro()

macro(mixtape_benches)
  find_package(benchmark REQUIRED)
  find_package(GTest REQUIRED)
  foreach(entry ${MIXTAPE_BENCH_LIST})
    mixtape_program("${entry}" bench_name)
    target_link_libraries(${bench_name} PRIVATE benchmark::benchmark benchmark::benchmark_main GTest::gtest)
  endforeach()
  if(EXISTS ${CMAKE_SOURCE_DIR}/bench/CMakeLists.txt)
    add_subdirectory(bench)
  endif()
endmacro()
