# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# libretrograde_ort: gradient operators for ONNX Runtime, which loads it as a library of custom
# operators. Nothing of the runtime is needed to build it, and it exports one function.

set(RG_ORT_OBJECTS "")
set(kernels "")
foreach(name norm scatter loss conv)
    list(APPEND kernels ${PROJECT_SOURCE_DIR}/src/ort/ort_${name}_cpu.c)
endforeach()
rg_compile_isas(rg_ort "${kernels}" RG_ORT_OBJECTS)
set(RG_ORT_SOURCES ${RG_ORT_OBJECTS})
foreach(name library kernel compute native native_shapes native_optimizers pointwise volume small_conv prepared)
    list(APPEND RG_ORT_SOURCES ${PROJECT_SOURCE_DIR}/src/ort/ort_${name}.c)
endforeach()
add_library(retrograde_ort MODULE ${RG_ORT_SOURCES})
rg_target(retrograde_ort)
target_link_libraries(retrograde_ort PRIVATE retrograde_static Threads::Threads m)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/retrograde_ort.map CONTENT
    "{ global: RegisterCustomOps; local: *; };\n")
target_link_options(retrograde_ort PRIVATE
    -Wl,--version-script,${PROJECT_BINARY_DIR}/retrograde_ort.map)
set_target_properties(retrograde_ort PROPERTIES LINK_DEPENDS
    ${PROJECT_BINARY_DIR}/retrograde_ort.map)
install(TARGETS retrograde_ort LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
