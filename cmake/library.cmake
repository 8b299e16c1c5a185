# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# What all libraries of the project have alike.

# The shared library `name` and the static one `name`_static: versions, file names, the names that the package
# has, too (retrograde::retrograde and retrograde::static, retrograde::train and retrograde::train_static).
function(rg_library name)
    string(REPLACE retrograde_ "" shared ${name})
    set(static static)
    if(NOT shared STREQUAL name)
        set(static ${shared}_static)
    endif()
    set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
        EXPORT_NAME ${shared})
    set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME ${static})
    foreach(library ${name} ${name}_static)
        set_target_properties(${library} PROPERTIES LINKER_LANGUAGE C)
        rg_link(${library})
    endforeach()
    target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL) # what is linked statically stays inside
    add_library(retrograde::${shared} ALIAS ${name})
    add_library(retrograde::${static} ALIAS ${name}_static)
endfunction()

# Gives what is defined with RG_PRIVATE_API a version of its own, that of the release: a libretrograde_train of
# another release is refused by the loader instead of calling what has changed.
function(rg_private_version library)
    get_target_property(sources rg_objects SOURCES)
    set(names "")
    foreach(source ${sources})
        file(READ ${source} text)
        string(REPLACE ";" "," text "${text}") # which would end an entry of a list
        string(REGEX MATCHALL "RG_PRIVATE_API [^=(]*rg_[a-z0-9_]+( =|[(])" found "${text}")
        if(found)
            set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
        endif()
        list(TRANSFORM found REPLACE "^.*[^a-z0-9_](rg_[a-z0-9_]+)( =|[(])$" "\\1")
        list(APPEND names ${found})
    endforeach()
    list(SORT names)
    set(RG_PRIVATE_NAMES ${names} PARENT_SCOPE) # the tests know them, too
    list(JOIN names ";\n        " names)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${library}.map CONTENT
"RETROGRADE_PRIVATE_@PROJECT_VERSION@ {
    global:
        @names@;
};
" @ONLY)
    target_link_options(${library} PRIVATE -Wl,--version-script,${PROJECT_BINARY_DIR}/${library}.map)
    set_property(TARGET ${library} APPEND PROPERTY LINK_DEPENDS ${PROJECT_BINARY_DIR}/${library}.map)
endfunction()
