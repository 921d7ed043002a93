// Runs the threads of a block, one after another, on one host thread.
//
// Fibers are lazy: one fiber runs thread after thread until one of them meets a barrier; only then
// does the next fiber begin with the threads that are left. So a kernel without barriers pays for
// none. Waiting at the block's barrier and waiting in an exchange of the wave are different states;
// threads that have returned are waited for by nobody. A wave some of whose lanes took another way
// goes on with those that came, when nothing else can.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../include/hipemu/kernel_abi.h"

namespace hipemu {

struct Launch {
    std::string name;
    const hipemu_kernel* kernel = nullptr;
    hipemu_index grid{};
    hipemu_index block{};
    std::size_t dynamic_shared = 0;
    std::shared_ptr<char> arguments;
    std::vector<std::size_t> offsets;
};

// Runs all blocks. 0, or the hipError_t of a kernel that touched memory which is not there
// (hipErrorIllegalAddress) or overran its stack (hipErrorLaunchFailure), said on standard error
// with kernel, block, thread and address.
int run_grid(const Launch& launch);

unsigned wave_size();

}  // namespace hipemu
