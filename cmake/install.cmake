# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# Install: headers, the libraries, the program with its manual and completions, a CMake package,
# pkg-config files, the licence.

include(CMakePackageConfigHelpers)

# ---- headers ----

set(unwanted "")
if(NOT RG_FILES)
    list(APPEND unwanted REGEX "/(files|safetensors)[.]h$" EXCLUDE)
endif()
if(NOT RG_TRAIN)
    list(JOIN RG_TRAIN_HEADERS "|" names)
    list(APPEND unwanted REGEX "/(${names})[.]h$" EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/retrograde ${PROJECT_BINARY_DIR}/include/retrograde
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h ${unwanted})

# ---- libraries and program ----

# An export for each: who links a shared library needs nothing of what the static one is linked with, and who
# links libretrograde nothing of libretrograde_train.
foreach(library ${RG_LIBRARIES})
    install(TARGETS ${library} EXPORT ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
if(RG_TRAIN AND RG_MPI_SHIMS)
    install(FILES ${RG_MPI_SHIMS} DESTINATION ${CMAKE_INSTALL_LIBDIR}/retrograde
        PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endif()
if(RG_PROGRAM)
    install(TARGETS rg_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    if(NOT CMAKE_CROSSCOMPILING) # the program writes them
        install(FILES ${PROJECT_BINARY_DIR}/retrograde.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
        install(FILES ${PROJECT_BINARY_DIR}/retrograde.bash RENAME retrograde
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
        install(FILES ${PROJECT_BINARY_DIR}/retrograde.zsh RENAME _retrograde
            DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
        install(FILES ${PROJECT_BINARY_DIR}/retrograde.fish
            DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    endif()
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# ---- CMake package ----

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/retrograde)
set(RG_CUDA_MAJOR "") # of the toolkit that programs with the static library are linked with
set(RG_CUDA_VERSION "")
if(RG_HAVE_CUDA)
    set(RG_CUDA_MAJOR ${CUDAToolkit_VERSION_MAJOR})
    set(RG_CUDA_VERSION ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR})
endif()
set(RG_TRAIN_PACKAGES "") # that programs with the static libretrograde_train are linked with
foreach(name PNG JPEG ZLIB)
    if(TARGET ${name}::${name} AND RG_TRAIN)
        list(APPEND RG_TRAIN_PACKAGES ${name})
    endif()
endforeach()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/retrograde-config.cmake.in
    ${PROJECT_BINARY_DIR}/package/retrograde-config.cmake INSTALL_DESTINATION ${package}
    NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/retrograde-config-version.cmake
    COMPATIBILITY SameMinorVersion)
foreach(library ${RG_LIBRARIES})
    string(REPLACE _ - file ${library}-targets.cmake)
    install(EXPORT ${library} NAMESPACE retrograde:: FILE ${file} DESTINATION ${package})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/package/retrograde-config.cmake
    ${PROJECT_BINARY_DIR}/package/retrograde-config-version.cmake DESTINATION ${package})

# ---- pkg-config ----

# A folder below the prefix is written relative to it; one that is not keeps its full path.
function(rg_pc_folder folder result)
    if(IS_ABSOLUTE ${folder})
        set(${result} ${folder} PARENT_SCOPE)
    else()
        set(${result} "\${prefix}/${folder}" PARENT_SCOPE)
    endif()
endfunction()
rg_pc_folder(${CMAKE_INSTALL_INCLUDEDIR} RG_PC_INCLUDEDIR)
rg_pc_folder(${CMAKE_INSTALL_LIBDIR} RG_PC_LIBDIR)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    set(RG_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
    file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    string(REGEX REPLACE "/$" "" up ${up})
    set(RG_PC_PREFIX "\${pcfiledir}/${up}")
endif()
set(RG_PC_CUDA "")
set(RG_PC_CUDA_LIBS "")
if(RG_HAVE_CUDA)
    set(RG_PC_CUDA_LIBS " -lcudart_static -lrt -ldl")
    if(NOT CUDAToolkit_LIBRARY_DIR IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        set(RG_PC_CUDA "cudalibdir=${CUDAToolkit_LIBRARY_DIR}\n")
        string(PREPEND RG_PC_CUDA_LIBS " -L\${cudalibdir}")
    endif()
endif()
set(RG_PC_TRAIN_LIBS "")
foreach(package ${RG_TRAIN_PACKAGES})
    string(TOLOWER ${package} name)
    string(REPLACE zlib z name ${name})
    string(APPEND RG_PC_TRAIN_LIBS "-l${name} ")
endforeach()
if(WEBP_FOUND)
    string(APPEND RG_PC_TRAIN_LIBS "-lwebp ")
endif()
set(names retrograde)
if(RG_TRAIN)
    list(APPEND names retrograde_train)
endif()
foreach(name ${names})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/package/${name}.pc
        @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/package/${name}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
