# cmake -P: compiles one kernel file to a fatbin, and writes a C++ file that embeds it and enters its kernels' names
# in the module table. The compiler's report (registers, spills) stays beside it as a .log.
# Variables: NVCC SOURCE FATBIN EMBEDDED INCLUDE, PTX (75: that of this compute capability too; 0: none)
set(targets -gencode arch=compute_90a,code=sm_90a)
if(PTX)
  list(APPEND targets -gencode arch=compute_${PTX},code=compute_${PTX})
endif()
execute_process(
  COMMAND ${NVCC} -fatbin -std=c++17 -O3 -fmad=false --expt-relaxed-constexpr -Xptxas -v -Xfatbin -compress-all ${targets}
          -I${INCLUDE} -MD -MF ${FATBIN}.d -MT ${FATBIN} -o ${FATBIN} ${SOURCE}
  RESULT_VARIABLE failed OUTPUT_VARIABLE report ERROR_VARIABLE report)
file(WRITE ${FATBIN}.log "${report}")
if(failed)
  message(FATAL_ERROR "${report}")
endif()
string(REGEX MATCHALL "Compiling entry function '[A-Za-z0-9_]+'" entries "${report}")
set(names "")
foreach(entry ${entries})
  string(REGEX REPLACE ".*'(.*)'" "\\1" name ${entry})
  string(APPEND names "    \"${name}\",\n")
endforeach()
if(names STREQUAL "")
  message(FATAL_ERROR "${SOURCE} holds no kernel")
endif()
get_filename_component(symbol ${FATBIN} NAME_WE)
file(WRITE ${EMBEDDED} "#include \"mixtape/backend/gpu/modules.h\"

asm(\".section .rodata\\n.balign 64\\n.globl ${symbol}_begin\\n.hidden ${symbol}_begin\\n${symbol}_begin:\\n\"
    \".incbin \\\"${FATBIN}\\\"\\n.globl ${symbol}_end\\n.hidden ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n.previous\");
extern \"C\" const unsigned char ${symbol}_begin[] __attribute__((visibility(\"hidden\")));
extern \"C\" const unsigned char ${symbol}_end[] __attribute__((visibility(\"hidden\")));

namespace mixtape::gpu {
namespace {
[[maybe_unused]] const bool registered = register_module({\"${symbol}\", ${symbol}_begin, ${symbol}_end, {90}, ${PTX}, {
${names}}});
}
}  // namespace mixtape::gpu
")
