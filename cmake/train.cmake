# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# libretrograde_train: data sets, models, the trainer, checkpoints, reports. It stands on libretrograde and on
# zlib, libpng, libjpeg-turbo and libwebp; where one of these is missing, so is what it reads.

include(CheckCSourceCompiles)
find_package(ZLIB QUIET)
find_package(PNG QUIET)
find_package(JPEG QUIET)
# libwebp has no module of CMake; it is linked by its name, so that installed packages hold no path of it.
set(CMAKE_REQUIRED_LIBRARIES webp)
check_c_source_compiles("#include <webp/decode.h>\nint main(void) { return WebPGetDecoderVersion() == 0; }" WEBP_FOUND)
unset(CMAKE_REQUIRED_LIBRARIES)
set(RG_HAVE_ZLIB $<BOOL:${ZLIB_FOUND}>)
set(RG_HAVE_PNG $<BOOL:${PNG_FOUND}>)
set(RG_HAVE_JPEG $<BOOL:${JPEG_FOUND}>)
set(RG_HAVE_WEBP $<BOOL:${WEBP_FOUND}>)
set(RG_TRAIN_LIBRARIES "")
if(WEBP_FOUND)
    list(APPEND RG_TRAIN_LIBRARIES webp)
endif()
if(PNG_FOUND)
    list(APPEND RG_TRAIN_LIBRARIES PNG::PNG)
endif()
if(JPEG_FOUND)
    list(APPEND RG_TRAIN_LIBRARIES JPEG::JPEG)
endif()
if(ZLIB_FOUND)
    list(APPEND RG_TRAIN_LIBRARIES ZLIB::ZLIB)
endif()

add_library(rg_train_objects OBJECT
    src/train/dataset.c src/train/dataset_open.c src/train/dataset_arrays.c
    src/train/data_source.c src/train/idx.c src/train/zip.c src/train/npy_set.c src/train/npy_targets.c
    src/train/png_image.c src/train/png_samples.c src/train/jpeg_image.c src/train/webp_image.c src/train/resize.c src/train/image_file.c
    src/train/dataset_measure.c src/train/image_items.c src/train/decode_budget.c src/train/exif.c src/train/image_pass.c src/train/image_set.c src/train/image_folder.c src/train/folder_names.c src/train/mask_folder.c src/train/mask_image.c src/train/mask_items.c src/train/tar_members.c src/train/tar_set.c src/train/glyphs.c src/train/loader.c src/train/loader_desc.c src/train/loader_image.c
    src/train/model.c src/train/layer_rules.c src/train/network.c src/train/network_desc.c src/train/scores.c src/train/stepper.c
    src/train/stepper_graph.c src/train/stepper_slot.c src/train/stepper_micro.c
    src/train/stepper_group.c src/train/stepper_time.c src/train/stepper_sync.c src/train/network_norm.c
    src/train/network_onnx.c src/train/model_onnx.c src/train/base64.c src/train/patterns.c src/train/weights.c src/train/session.c src/train/session_state.c src/train/session_named.c
    src/train/run_state.c src/train/run_tensors.c src/train/trainer_desc.c src/train/trainer.c
    src/train/trainer_set.c src/train/trainer_save.c src/train/trainer_use.c src/train/trainer_history.c src/train/trainer_group.c
    src/train/trainer_report.c src/train/predict_file.c src/train/checkpoint.c
    src/train/checkpoint_import.c src/train/model_convert.c src/train/model_export.c
    src/train/training_run.c src/train/run_folder.c
    src/train/graph_drawing.c
    src/train/figures.c src/train/page.c src/train/chart.c src/train/png_uri.c
    src/train/draw_rows.c src/train/draw_order.c src/train/draw_routes.c src/train/draw_layout.c
    src/train/draw_svg.c src/train/draw_dot.c
    src/train/confusion.c src/train/report_style.c src/train/report_curves.c src/train/report_confusion.c
    src/train/report_worst.c src/train/report_targets.c src/train/scatter.c src/train/findings.c src/train/report_network.c src/train/report_time.c
    src/train/report_memory.c src/train/report_html.c
    src/train/metrics_csv.c src/train/metrics_events.c)
set_property(SOURCE src/train/data_source.c src/train/png_samples.c src/train/jpeg_image.c src/train/webp_image.c PROPERTY
    COMPILE_DEFINITIONS RG_HAVE_ZLIB=${RG_HAVE_ZLIB} RG_HAVE_PNG=${RG_HAVE_PNG} RG_HAVE_JPEG=${RG_HAVE_JPEG} RG_HAVE_WEBP=${RG_HAVE_WEBP})
target_sources(rg_train_objects PRIVATE
    src/group/group.c src/group/group_thread.c src/group/messages.c src/group/launcher.c src/group/group_limit.c
    src/group/heartbeat.c src/group/heartbeat_addresses.c src/group/heartbeat_connect.c
    src/group/heartbeat_send.c src/group/mpi_open.c src/group/mpi_abi.c src/group/nccl.c)
set_property(SOURCE src/group/mpi_open.c PROPERTY COMPILE_DEFINITIONS
    RG_LIBDIR="${CMAKE_INSTALL_LIBDIR}")
target_sources(rg_train_objects PRIVATE
    src/onnx/protobuf.c src/onnx/onnx_arena.c src/onnx/onnx_tensor.c src/onnx/onnx_external.c
    src/onnx/onnx_read.c src/onnx/onnx_open.c src/onnx/onnx_network.c src/onnx/import.c
    src/onnx/import_operators.c src/onnx/import_attribute.c src/onnx/import_value.c
    src/onnx/import_constant.c src/onnx/import_flow.c src/onnx/import_table.c
    src/onnx/import_elements.c src/onnx/import_products.c src/onnx/import_shapes.c
    src/onnx/import_images.c src/onnx/onnx_strip.c src/onnx/onnx_head.c src/onnx/protobuf_write.c
    src/onnx/import_parts.c src/onnx/import_reduce.c src/onnx/import_expand.c
    src/onnx/import_choose.c src/onnx/import_where.c src/onnx/import_gelu.c src/onnx/import_loss.c
    src/onnx/import_upsample.c src/onnx/import_batch.c src/onnx/import_norms.c src/onnx/import_cubic.c
    src/onnx/fold.c
    src/onnx/fold_shape.c src/onnx/fold_masks.c src/onnx/onnx_parameters.c
    src/onnx/onnx_write.c src/onnx/onnx_rewrite.c src/onnx/onnx_save.c src/onnx/onnx_weights.c
    src/onnx/export.c src/onnx/export_emit.c src/onnx/export_value.c src/onnx/export_windows.c
    src/onnx/export_window_gradient.c
    src/onnx/export_products.c src/onnx/export_elements.c src/onnx/export_norms.c
    src/onnx/export_shapes.c src/onnx/export_gradient.c src/onnx/export_shape_gradient.c
    src/onnx/export_layer_gradient.c)
rg_target(rg_train_objects)
# Of what reads data, trains and writes tensors some loops are long. Nobody waits for the rest: the operators of
# ONNX one by one, drawings and reports.
file(GLOB quick RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS src/onnx/import*.c src/onnx/export*.c
    src/train/draw_*.c src/train/report_*.c)
get_target_property(loops rg_train_objects SOURCES)
list(REMOVE_ITEM loops ${quick})
set_property(SOURCE ${loops} APPEND PROPERTY COMPILE_OPTIONS ${RG_LOOPS})
set_property(SOURCE ${quick} APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:${RG_QUICK}>")
target_include_directories(rg_train_objects SYSTEM PRIVATE ${ZLIB_INCLUDE_DIRS} ${PNG_INCLUDE_DIRS}
    ${JPEG_INCLUDE_DIRS})

add_library(retrograde_train SHARED $<TARGET_OBJECTS:rg_train_objects>)
add_library(retrograde_train_static STATIC $<TARGET_OBJECTS:rg_train_objects>)
target_link_libraries(retrograde_train PUBLIC retrograde)
target_link_libraries(retrograde_train_static PUBLIC retrograde_static)
foreach(library retrograde_train retrograde_train_static)
    target_link_libraries(${library} PRIVATE ${RG_TRAIN_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS} m)
endforeach()

# ---- MPI ----

# A small library for each MPI without the standard ABI whose compiler is here; libretrograde_train opens it at run
# time and is itself linked with no MPI.
option(RG_MPI "build what opens Open MPI and MPICH where their mpicc is found" ON)
set(RG_MPI_SHIMS "")
if(RG_MPI AND NOT CMAKE_CROSSCOMPILING)
    foreach(name openmpi mpich)
        find_program(RG_MPICC_${name} mpicc.${name})
    endforeach()
    find_program(RG_MPICC mpicc)
    if(RG_MPICC AND NOT RG_MPICC_openmpi AND NOT RG_MPICC_mpich)
        file(WRITE ${PROJECT_BINARY_DIR}/which_mpi.c "#include <mpi.h>\n")
        execute_process(COMMAND ${RG_MPICC} -E -dM ${PROJECT_BINARY_DIR}/which_mpi.c
            OUTPUT_VARIABLE macros ERROR_QUIET)
        if(macros MATCHES "#define OPEN_MPI ")
            set(RG_MPICC_openmpi ${RG_MPICC})
        elseif(macros MATCHES "#define MPICH_VERSION ")
            set(RG_MPICC_mpich ${RG_MPICC})
        endif()
    endif()
    foreach(name openmpi mpich)
        if(RG_MPICC_${name})
            set(shim ${PROJECT_BINARY_DIR}/retrograde-${name}.so)
            add_custom_command(OUTPUT ${shim}
                COMMAND ${RG_MPICC_${name}} -std=gnu11 -O2 -g -Wall -Wextra -fPIC -shared
                    -fvisibility=hidden -I ${PROJECT_SOURCE_DIR}/src -o ${shim}
                    ${PROJECT_SOURCE_DIR}/src/group/mpi_shim.c
                DEPENDS src/group/mpi_shim.c src/group/mpi_table.h
                COMMENT "Building retrograde-${name}.so" VERBATIM)
            list(APPEND RG_MPI_SHIMS ${shim})
        endif()
    endforeach()
endif()
add_custom_target(rg_mpi_shims ALL DEPENDS ${RG_MPI_SHIMS})
