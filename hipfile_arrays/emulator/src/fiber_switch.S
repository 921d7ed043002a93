/* void hipemu_switch(void** save, void* to): leaves one stack for another, keeping what the System V
   ABI asks a callee to keep. hipemu_enter(void* to) only takes up the other one. */
#ifndef __x86_64__
#error "the emulated device's kernels need an x86-64 processor: port fiber_switch.S and fibers.cpp"
#endif

        .text
        .globl  hipemu_switch
        .hidden hipemu_switch
        .type   hipemu_switch, @function
hipemu_switch:
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rsp, (%rdi)
        movq    %rsi, %rdi
        .globl  hipemu_enter
        .hidden hipemu_enter
        .type   hipemu_enter, @function
hipemu_enter:
        movq    %rdi, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   hipemu_switch, . - hipemu_switch
        .size   hipemu_enter, . - hipemu_enter
        .section .note.GNU-stack, "", @progbits
