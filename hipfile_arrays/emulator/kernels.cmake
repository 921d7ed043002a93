# Kernels: launches and fibers in the runtime, and the run-time compiler with its headers.
enable_language(ASM)
target_sources(emulated_hip PRIVATE src/launch.cpp src/fibers.cpp src/fiber_switch.S)

emulator_library(emulated_hiprtc libhiprtc.so.7
    src/rtc.cpp src/rtc_compile.cpp src/rtc_cache.cpp src/rtc_process.cpp src/rewrite.cpp)
target_link_libraries(emulated_hiprtc PRIVATE emulated_hip ${CMAKE_DL_LIBS})

# The library looks for the headers beside its own folder, in the build tree as when installed.
file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}/include" "${CMAKE_CURRENT_BINARY_DIR}/include"
    SYMBOLIC)
install(DIRECTORY include/ DESTINATION hipfile_arrays/emulator/include)
