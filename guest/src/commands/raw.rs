//! System calls without a C library, for the code that runs between clone and exec.
//!
//! A supervisor shares the guest's memory, and so also its thread-local storage, where a C library keeps
//! `errno`. Nothing here touches it: arguments in registers, the result as the kernel gives it (negative is
//! an errno).

use core::arch::asm;

/// # Safety
/// As dangerous as the call that is made.
#[inline(always)]
pub unsafe fn call(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel keeps all registers but these.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: the kernel keeps all registers but x0.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d, in("x4") e, options(nostack));
    }
    result
}

/// # Safety
/// `stack` is the upper end of memory that nobody else uses; `pid` is written with CLONE_PARENT_SETTID;
/// `run` never returns.
#[inline(never)]
pub unsafe fn clone(
    flags: usize,
    stack: *mut u8,
    pid: *mut i32,
    run: unsafe extern "C" fn(*mut u8) -> !,
    argument: *mut u8,
) -> isize {
    let result: isize;
    // SAFETY: the child leaves this frame at once, on its own stack.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags, in("rsi") stack, in("rdx") pid, in("r10") 0usize, in("r8") 0usize,
            in("r12") argument, in("r13") run,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    // SAFETY: the child leaves this frame at once, on its own stack.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x9",
            "blr x10",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone, inlateout("x0") flags => result, in("x1") stack, in("x2") pid, in("x3") 0usize, in("x4") 0usize,
            in("x9") argument, in("x10") run, lateout("x30") _,
        );
    }
    result
}
